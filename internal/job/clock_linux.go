package job

import "golang.org/x/sys/unix"

// clockID is a clock that all processes share, that nobody sets, and that goes on while
// the machine sleeps, as the database's does.
const clockID = unix.CLOCK_BOOTTIME
