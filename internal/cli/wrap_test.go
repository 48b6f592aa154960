package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/cli"
	"pgregory.net/rapid"
)

func TestWrap_BreaksAtSpaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		most int
		want []string
	}{
		{"", 5, []string{""}},
		{"all of it", 0, []string{"all of it"}},
		{"all of it", 9, []string{"all of it"}},
		{"one two three four", 9, []string{"one two", "  three", "  four"}},
		{"one two three", 8, []string{"one two", "  three"}},
		{"  in: one two", 9, []string{"  in: one", "    two"}},
		{"aaaaaaaaaaaaaaa b", 6, []string{"aaaaaa", "  aaaa", "  aaaa", "  a b"}},
		{"日本語日本語", 5, []string{"日本", "  語", "  日", "  本", "  語"}},
		{"abc", 1, []string{"a", "b", "c"}},
		{"日本", 1, []string{"日", "本"}},
	} {
		if got := cli.Wrap(c.line, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d columns is %q, want %q", c.line, c.most, got, c.want)
		}
	}
}

func TestWrap_LosesNothingAndFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := cli.Printable(rapid.StringMatching(`[ ]{0,4}[a-zé日 ]*`).Draw(t, "line"))
		most := rapid.IntRange(2, 30).Draw(t, "most")
		lines := cli.Wrap(line, most)
		for _, l := range lines {
			if cli.Width(l) > most {
				t.Fatalf("%q is wider than %d", l, most)
			}
		}
		squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if squeeze(strings.Join(lines, "")) != squeeze(line) {
			t.Fatalf("%q became %q", line, lines)
		}
	})
}
