package pglock_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatepost/gatepost/pglock"
)

func TestWatchdog_BitesInTimeAndNeverLate(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		do    func(pglock.Watchdog)
		after time.Duration // how long the connection lives; zero: it is left alone
	}{
		"left running":                   {func(pglock.Watchdog) {}, time.Second},
		"extended":                       {func(w pglock.Watchdog) { w.Extend(5 * time.Second) }, 5 * time.Second},
		"stopped":                        {func(w pglock.Watchdog) { w.Stop() }, 0},
		"fired while it was stopped":     {func(w pglock.Watchdog) { w.Stop(); w.Fire() }, 0},
		"fired after it was extended":    {func(w pglock.Watchdog) { w.Extend(5 * time.Second); w.Fire() }, 5 * time.Second},
		"fired, extended and stopped":    {func(w pglock.Watchdog) { w.Extend(5 * time.Second); w.Stop(); w.Fire() }, 0},
		"extended when it had all gone":  {func(w pglock.Watchdog) { w.Extend(0) }, 0 + time.Nanosecond},
		"stopped just before its moment": {func(w pglock.Watchdog) { time.Sleep(999 * time.Millisecond); w.Stop() }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer theirs.Close()
				start := time.Now()
				test.do(pglock.Watch(ours, start.Add(time.Second)))
				_ = theirs.SetReadDeadline(start.Add(time.Minute))
				_, err := theirs.Read(make([]byte, 1))
				lived := time.Since(start)
				switch {
				case test.after == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
					t.Errorf("cut after %s: %v", lived, err)
				case test.after > 0 && (!errors.Is(err, io.EOF) || lived > test.after):
					t.Errorf("lived %s (%v), want %s", lived, err, test.after)
				}
				_ = ours.Close()
			})
		})
	}
}
