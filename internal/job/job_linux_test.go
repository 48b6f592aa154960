package job_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/job"
)

// The name of a process stands in the middle of what /proc says of it, and can hold
// anything: also what looks like the rest.
func TestRun_FindsProcessesWhateverTheirNames(t *testing.T) {
	t.Parallel()
	name := t.TempDir() + "/x) Z 1 1"
	script := `cp /bin/sleep '` + name + `'; setsid '` + name + `' 60 & while [ "$(cut -c1-8 /proc/$!/comm)" != 'x) Z 1 1' ]; do sleep 0.01; done; exit 2`
	out, _ := play(t, plan{Script: script, TTL: time.Minute, Grace: time.Second, Lead: time.Second})
	if want := (job.Outcome{Code: 2, Left: 1}); out.Outcome != want {
		t.Errorf("%+v, want %+v", out, want)
	}
}
