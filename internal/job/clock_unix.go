//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a reading of the clock that the run and its monitor share, in nanoseconds.
type moment int64

// now reads the clock.
func now() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(clockID, &ts); err != nil {
		panic(err) // no input causes it: the system has the clock
	}
	return moment(ts.Nano())
}

// momentOf is t on the shared clock, or a little earlier: a process that is stopped
// between the two readings must not move a deadline into the future.
func momentOf(t time.Time) moment {
	at := now()
	return at.add(time.Until(t))
}

func (m moment) add(d time.Duration) moment { return m + moment(d) }

// until is how long it is from m to other.
func (m moment) until(other moment) time.Duration { return time.Duration(other - m) }
