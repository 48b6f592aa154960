package cli_test

import (
	"slices"
	"testing"

	"github.com/gatepost/gatepost/internal/cli"
)

func TestNear_FindsWhatWasMeant(t *testing.T) {
	t.Parallel()
	words := []string{"reports/daily", "reports/weekly", "Import", "größe", "a", "b"}
	for typed, want := range map[string][]string{
		"reports/dialy":   {"reports/daily"}, // changed places
		"report/daily":    {"reports/daily"},
		"reports/dayly":   {"reports/daily"},
		"REPORTS/WEEKLY":  {"reports/weekly"},
		"import":          {"Import"},
		"grose":           nil,
		"große":           {"größe"},
		"reports/monthly": nil,
		"":                {"a", "b"},
		"invoices":        nil,
	} {
		if got := cli.Near(typed, words); !slices.Equal(got, want) {
			t.Errorf("near %q are %q, want %q", typed, got, want)
		}
	}
	if got, want := cli.DidYouMean("reports/dialy", words), "did you mean reports/daily?"; got != want {
		t.Errorf("it asks %q, want %q", got, want)
	}
	if got := cli.DidYouMean("x\x1b[2Jyyyyyyyyyyyyy", []string{"x\x1b[2Jyyyyyyyyyyyyz"}); got != `did you mean x\x1b[2Jyyyyyyyyyyyyz?` {
		t.Errorf("it asks %q", got)
	}
}
