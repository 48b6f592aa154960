//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package job

import "golang.org/x/sys/unix"

// clockID is a clock that all processes share and that nobody sets.
const clockID = unix.CLOCK_MONOTONIC
