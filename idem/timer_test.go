package idem_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An attempt is trusted until nine tenths of its lease after its last renewal was sent,
// and for longer only while a call finds out by the row.
func TestAttempt_IsLostAtItsDeadline(t *testing.T) {
	t.Parallel()
	const s = time.Second
	pinned := func(a *idem.Attempt, d time.Duration) {
		_ = a.Pinned(func() error { time.Sleep(d); return nil })
	}
	for what, test := range map[string]struct {
		do   func(a *idem.Attempt, start time.Time)
		lost time.Duration // after the claim was sent
	}{
		"left alone":                      {func(*idem.Attempt, time.Time) {}, 9 * s},
		"renewed":                         {func(a *idem.Attempt, start time.Time) { time.Sleep(4 * s); a.Extend(start.Add(4 * s)) }, 13 * s},
		"renewed, answered late":          {func(a *idem.Attempt, start time.Time) { time.Sleep(8 * s); a.Extend(start.Add(4 * s)) }, 13 * s},
		"answers out of order":            {func(a *idem.Attempt, start time.Time) { a.Extend(start.Add(3 * s)); a.Extend(start.Add(1 * s)) }, 12 * s},
		"answered after the deadline":     {func(a *idem.Attempt, start time.Time) { time.Sleep(9*s + 1); a.Extend(start.Add(8 * s)) }, 9 * s},
		"timer that a renewal has outrun": {func(a *idem.Attempt, start time.Time) { a.Extend(start.Add(2 * s)); a.Lapse() }, 11 * s},
		"a call that ends before":         {func(a *idem.Attempt, _ time.Time) { pinned(a, 5*s) }, 9 * s},
		"a call that takes longer":        {func(a *idem.Attempt, _ time.Time) { pinned(a, 15*s) }, 15 * s},
		"a call that takes longer, inside": {func(a *idem.Attempt, _ time.Time) {
			_ = a.Pinned(func() error { pinned(a, 15*s); time.Sleep(s); return nil })
		}, 16 * s},
		"renewed during a call": {func(a *idem.Attempt, start time.Time) {
			_ = a.Pinned(func() error { time.Sleep(15 * s); a.Extend(start.Add(14 * s)); return nil })
		}, 23 * s},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, err := idem.New(new(pgxpool.Pool), idem.Config{Lease: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				a := idem.Granted(t.Context(), store, start)
				over := make(chan time.Duration, 1)
				go func() { <-a.Done(); over <- time.Since(start) }()
				test.do(a, start)
				if lost := <-over; lost != test.lost || !errors.Is(a.Err(), idem.ErrLapsed) {
					t.Errorf("lost after %s (%v), want %s", lost, a.Err(), test.lost)
				}
			})
		})
	}
}
