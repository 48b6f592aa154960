//go:build linux

package faults_test

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock in nanoseconds: the same for all its processes,
// and nobody can step it.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// wallOffset is what the wall clock is ahead of now.
func wallOffset() int64 { return time.Now().UnixNano() - now() }

// pause waits, less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A metronome finds out when its process did not run: it was stopped, or the machine
// had something else to do. Each gap is recorded.
func metronome(ctx context.Context, rec *recorder) {
	const beat, late = 5 * time.Millisecond, 10 * time.Millisecond
	for last := now(); ctx.Err() == nil; {
		pause(ctx, beat)
		at := now()
		if at-last > int64(beat+late) {
			rec.note(op{Kind: hiccup, Call: last, Return: at})
		}
		last = at
	}
}
