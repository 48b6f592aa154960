package doctor_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
)

func TestStep_SaysWhatALineIs(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		kind doctor.Kind
		text string
	}{
		"VACUUM gatepost.leases;":                       {doctor.SQL, "VACUUM gatepost.leases;"},
		"gatepost release a --token 7 --terminate":      {doctor.Shell, "gatepost release a --token 7 --terminate"},
		"-- or: COMMIT PREPARED 'x';":                   {doctor.Text, "or: COMMIT PREPARED 'x';"},
		"gatepost migrate down --force && gatepost gc":  {doctor.Shell, "gatepost migrate down --force && gatepost gc"},
		"BEGIN; DROP TRIGGER a ON b; SELECT 1; COMMIT;": {doctor.SQL, "BEGIN; DROP TRIGGER a ON b; SELECT 1; COMMIT;"},
	} {
		if kind, text := doctor.Step(line); kind != want.kind || text != want.text {
			t.Errorf("%q is %s %q", line, kind, text)
		}
	}
}

// wellFormed fails for a line that is of no kind: SQL without its semicolon, or a command
// that isn't one.
func wellFormed(t *testing.T, r *doctor.Report) {
	t.Helper()
	for _, result := range r.Results {
		for _, f := range result.Findings {
			for _, line := range f.Remedy {
				kind, text := doctor.Step(line)
				if kind == doctor.Shell && !strings.HasPrefix(text, "gatepost ") && !strings.HasPrefix(text, "go ") || strings.Contains(line, "\n") {
					t.Errorf("%s: %q is no command", result.Check, line)
				}
			}
		}
	}
}
