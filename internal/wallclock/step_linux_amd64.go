package wallclock

import (
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for linkname
)

// kernelClock is the address of the runtime's pointer to the vDSO's clock_gettime.
//
//go:linkname kernelClock runtime.vdsoClockgettimeSym
var kernelClock uintptr

var (
	once sync.Once
	// original is clock_gettime, and ahead what the clock is ahead, in seconds. The
	// assembly reads both.
	original uintptr
	ahead    int64
)

// clock is clock_gettime with the wall clock stepped. It is called as C is.
func clock()

// clockAddress is where clock is.
func clockAddress() uintptr

// Step sets how much this process's wall clock is ahead of the machine's, in whole
// seconds; it is behind when that is negative. It says whether it can: where the kernel
// offers no vDSO it can't.
func Step(by time.Duration) bool {
	once.Do(func() {
		if kernelClock != 0 {
			original = kernelClock
			kernelClock = clockAddress()
		}
	})
	atomic.StoreInt64(&ahead, int64(by/time.Second))
	return original != 0
}
