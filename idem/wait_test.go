package idem_test

import (
	"math"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
)

// Whoever has no time left must not wait for ever, which is what 0 means to PostgreSQL.
func TestLockTimeout_IsMillisecondsAndNeverNone(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		-time.Hour: 1, 0: 1, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 1500 * time.Millisecond: 1500,
		math.MaxInt32 * time.Millisecond: math.MaxInt32, 30 * 24 * time.Hour: math.MaxInt32, math.MaxInt64: math.MaxInt32,
	} {
		if got := idem.AsLockTimeout(d); got != want {
			t.Errorf("%s is %d ms, want %d", d, got, want)
		}
	}
}
