package pglock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// offline is a client without a database, for what the clock alone decides.
func offline(t *testing.T, cfg pglock.Config) *pglock.Client {
	t.Helper()
	c, err := pglock.New(new(pgxpool.Pool), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Rule L: a lease is trusted until TTL - SafetyMargin after its last renewal was sent,
// to the nanosecond, whenever that was answered.
func TestLease_IsLostAtItsDeadline(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for what, test := range map[string]struct {
		do   func(l *pglock.Lease, start time.Time)
		lost time.Duration // after the request was sent
	}{
		"left alone":                         {func(*pglock.Lease, time.Time) {}, 9 * s},
		"renewed":                            {func(l *pglock.Lease, start time.Time) { time.Sleep(4 * s); l.Extend(start.Add(4 * s)) }, 13 * s},
		"renewed, answered late":             {func(l *pglock.Lease, start time.Time) { time.Sleep(8 * s); l.Extend(start.Add(4 * s)) }, 13 * s},
		"answers out of order":               {func(l *pglock.Lease, start time.Time) { l.Extend(start.Add(3 * s)); l.Extend(start.Add(1 * s)) }, 12 * s},
		"answered after the deadline":        {func(l *pglock.Lease, start time.Time) { time.Sleep(9*s + 1); l.Extend(start.Add(8 * s)) }, 9 * s},
		"timer that a renewal has outrun":    {func(l *pglock.Lease, start time.Time) { l.Extend(start.Add(2 * s)); l.Lapse() }, 11 * s},
		"answer that needs half the TTL":     {func(l *pglock.Lease, start time.Time) { time.Sleep(5 * s); l.Extend(start) }, 9 * s},
		"renewed again and again, then once": {func(l *pglock.Lease, start time.Time) { every(3*s, 5, l.Extend) }, 24 * s},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, start := offline(t, pglock.Config{TTL: 10 * time.Second}), time.Now()
				l, err := pglock.Granted(c, 0, start)
				if err != nil {
					t.Fatal(err)
				}
				over := make(chan time.Duration, 1)
				go func() { <-l.Done(); over <- time.Since(start) }()
				test.do(l, start)
				if lost := <-over; lost != test.lost || !errors.Is(l.Err(), pglock.ErrExpired) {
					t.Errorf("lost after %s (%v), want %s", lost, l.Err(), test.lost)
				}
			})
		})
	}
}

// every calls fn with the time, n times.
func every(d time.Duration, n int, fn func(time.Time)) {
	for range n {
		time.Sleep(d)
		fn(time.Now())
	}
}

// A grant whose answer needed longer than the lease is trusted is lost from the
// beginning.
func TestLease_AnsweredTooLateIsLostAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := pglock.Granted(offline(t, pglock.Config{TTL: 10 * time.Second}), 0, time.Now().Add(-9*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(l.Err(), pglock.ErrExpired) {
			t.Errorf("Err is %v", l.Err())
		}
	})
}

// Leases of any TTLs, over a network that is slow and that loses every so many tries:
// each is renewed in its time, none is lost, and no try mixes intervals that are too
// far apart.
func TestHeartbeat_SchedulesEachLeaseInItsTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		ttls := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{
			500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour,
		}), 1, 8).Draw(r, "ttls")
		sim := schedule{
			latency: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 20 * time.Millisecond}).Draw(r, "latency"),
			loses:   rapid.IntRange(3, 10).Draw(r, "one of so many tries is lost"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = sim.run(offline(t, pglock.Config{TTL: time.Minute}), ttls) })
		if err != nil {
			r.Fatal(err)
		}
	})
}

// schedule drives a heartbeat's schedule in the place of its goroutine.
type schedule struct {
	latency time.Duration
	loses   int
	tries   int
	sent    map[*pglock.Lease]time.Time // the last try
}

func (s *schedule) run(c *pglock.Client, ttls []time.Duration) error {
	s.sent = map[*pglock.Lease]time.Time{}
	var leases []*pglock.Lease
	for _, ttl := range ttls {
		l, err := pglock.Granted(c, ttl, time.Now())
		if err != nil {
			return err
		}
		pglock.Keep(c, l)
		s.sent[l] = time.Now()
		leases = append(leases, l)
		time.Sleep(7 * time.Millisecond)
	}
	for until := time.Now().Add(3 * slices.Min(ttls)); time.Now().Before(until); {
		batch, next := pglock.Due(c, time.Now())
		if err := s.try(c, batch); err != nil {
			return err
		}
		if len(batch) > 0 {
			continue // what was tried is due again
		}
		time.Sleep(max(time.Until(next), time.Nanosecond))
	}
	for _, l := range leases {
		if l.Err() != nil {
			return fmt.Errorf("a lease of TTLs %v is lost: %w", ttls, l.Err())
		}
		pglock.Drop(l)
	}
	return nil
}

// try sends a batch, and is answered or not.
func (s *schedule) try(c *pglock.Client, batch []*pglock.Lease) error {
	if len(batch) == 0 {
		return nil
	}
	s.tries++
	now, shortest, longest := time.Now(), time.Hour, time.Duration(0)
	for _, l := range batch {
		period, _ := l.Timing()
		shortest, longest = min(shortest, period), max(longest, period)
		if since := now.Sub(s.sent[l]); since > period+3*s.latency+time.Millisecond {
			return fmt.Errorf("a lease that is renewed every %s was not tried for %s", period, since)
		}
		s.sent[l] = now
	}
	if longest > 4*shortest {
		return fmt.Errorf("intervals of %s and %s share a try", shortest, longest)
	}
	time.Sleep(s.latency)
	pglock.Tried(c, batch, now, s.tries%s.loses != 0)
	return nil
}
