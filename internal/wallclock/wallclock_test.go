package wallclock_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/wallclock"
)

// The wall clock goes, and what durations are measured by doesn't.
//
//nolint:paralleltest // it is the process's clock
func TestStep_MovesTheWallClockOnly(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the clock can be stepped on linux/amd64 only")
	}
	before := time.Now()
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		if !wallclock.Step(by) {
			t.Skip("the kernel offers no vDSO")
		}
		now := time.Now()
		if wall := now.Round(0).Sub(before.Round(0)); wall < by || wall > by+time.Minute {
			t.Errorf("stepped by %s, the wall clock moved by %s", by, wall)
		}
		if passed := now.Sub(before); passed < 0 || passed > time.Minute {
			t.Errorf("stepped by %s, %s passed", by, passed)
		}
		fired := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() { close(fired) })
		select {
		case <-fired:
		case <-time.After(time.Minute):
			t.Fatalf("stepped by %s, a timer of 1 ms does not fire", by)
		}
	}
}
