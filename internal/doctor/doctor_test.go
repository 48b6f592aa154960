package doctor_test

import (
	"slices"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
)

func TestExamine_FindsNothingInAHealthyDatabase(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, "CREATE ROLE "+roleName(url)+" LOGIN")
	r := examine(t, url, patient())
	if list := found(r); len(list) != 0 || r.Unseen() != 0 {
		t.Errorf("it found %q, and %d checks saw a part only", list, r.Unseen())
	}
	for _, result := range r.Results {
		if result.Skipped != "" && !slices.Contains([]string{"privilege", "owner", "excess"}, result.Check) {
			t.Errorf("%s was skipped: %s", result.Check, result.Skipped)
		}
	}
	if r.Version == "" || r.Database == "" || r.Role != "postgres" || r.Standby {
		t.Errorf("it says of the server %q %q %q %v", r.Version, r.Database, r.Role, r.Standby)
	}
}

// findsExactly makes a fault in a database of its own, and looks for what it is told
// as. Its remedies are SQL, mostly: those that are must heal it.
func findsExactly(t *testing.T, s *server, fault []string, opts doctor.Options, want ...string) {
	t.Helper()
	url := s.database(t)
	run(t, url, fault...)
	r := examine(t, url, opts)
	if got := found(r); !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("it found %q, want %q", got, want)
	}
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Text == "" || len(f.Remedy) == 0 {
				t.Errorf("%s has no text or no remedy: %+v", result.Check, f)
			}
		}
	}
	heal(t, url, r)
	if left := found(examine(t, url, opts)); len(left) != 0 {
		t.Errorf("after its remedies it finds %q", left)
	}
}
