package bench

import (
	"context"
	"errors"
	"fmt"
	rnd "math/rand/v2"
	"sync"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ofHeld measures what grows with the leases that one client holds: its beat, and what
// it and its leases do meanwhile.
func (s *scale) ofHeld(ctx context.Context) error {
	one, err := s.hold(ctx, 1)
	if err != nil {
		return err
	}
	for _, n := range []int{min(1000, s.Sizes.Held), s.Sizes.Held} {
		many, err := s.hold(ctx, n)
		if err != nil {
			return err
		}
		for i := range heldRows {
			s.add("leases held", heldRows[i], one[i], many[i])
		}
		if n == s.Sizes.Held {
			break
		}
	}
	for _, sql := range []string{"DELETE FROM gatepost.leases", "VACUUM gatepost.leases"} { // their names are none of those that are counted next
		if _, err := s.small.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// heldRows are what hold measures.
var heldRows = [...]string{
	"a beat of all of them", "its statements", "acquire + release, beats at work",
	"a fenced transaction, beats at work", "release + acquire of a held one, beats at work",
	"another's try of a held one",
}

// hold holds so many leases for some beats.
func (s *scale) hold(ctx context.Context, n int) (found [len(heldRows)]Sample, err error) {
	every, ttl := 500*time.Millisecond, 30*time.Second
	if n > 10_000 { // whose beats take seconds, and many times that on a busy machine
		every, ttl = 20*time.Second, 5*time.Minute
	}
	beats := &beatTimes{}
	pool, err := pgxpool.NewWithConfig(ctx, s.small.config.Copy())
	if err != nil {
		return found, err
	}
	defer pool.Close()
	client, err := pglock.New(pool, pglock.Config{TTL: ttl, RenewEvery: every, Tracer: beats})
	if err != nil {
		return found, err
	}
	defer closeClient(ctx, client)
	s.Progress(fmt.Sprintf("acquiring %d leases", n))
	leases, err := holdMany(ctx, client, n)
	if err != nil {
		return found, err
	}
	s.Progress(fmt.Sprintf("holding %d leases", n))
	taken, err := s.besides(ctx, client, leases, beats, 3*every+100*time.Millisecond)
	if err != nil {
		return found, err
	}
	found[0], found[1] = sample(n, beats.rounds()), sample(n, beats.taken())
	for i, t := range taken {
		found[2+i] = sample(n, t)
	}
	for _, l := range leases {
		if l.Err() != nil {
			return found, fmt.Errorf("one of %d leases was lost: %w", n, l.Err())
		}
	}
	return found, nil
}

func holdMany(ctx context.Context, client *pglock.Client, n int) ([]*pglock.Lease, error) {
	var mu sync.Mutex
	leases := make([]*pglock.Lease, 0, n)
	_, err := crowd(8, func(ctx context.Context) error {
		mu.Lock()
		i := len(leases)
		if i == n {
			mu.Unlock()
			return nil
		}
		leases = append(leases, nil)
		mu.Unlock()
		lease, err := client.Acquire(ctx, fmt.Sprintf("held/%d/%d", n, i), nil)
		mu.Lock()
		leases[i] = lease
		mu.Unlock()
		return err
	})(ctx, (n+7)/8*4)
	return leases, err
}

// besides does for a while what a client does while it holds leases, and times it.
func (s *scale) besides(ctx context.Context, client *pglock.Client, leases []*pglock.Lease, beats *beatTimes, d time.Duration) (taken [4][]time.Duration, err error) {
	beats.start()
	do := [4]op{
		cycle(client, "held/besides"),
		func(ctx context.Context) error {
			return fenceBy(leases[rnd.IntN(len(leases))])(ctx)
		},
		func(ctx context.Context) error {
			i := rnd.IntN(len(leases))
			if i == 0 { // it is renewed by beats alone
				return cycle(client, "held/besides")(ctx)
			}
			if err := leases[i].Release(ctx); err != nil {
				return err
			}
			lease, err := client.Acquire(ctx, leases[i].Name(), nil)
			if err == nil {
				leases[i] = lease
			}
			return err
		},
		func(ctx context.Context) error {
			_, err := s.small.client.TryAcquire(ctx, leases[rnd.IntN(len(leases))].Name(), nil)
			if err == nil {
				return errors.New("a lease was to be held, but could be had")
			}
			return ignore(err, pglock.ErrHeld)
		},
	}
	for until := time.Now().Add(d); time.Now().Before(until); {
		for i := range do {
			if err := several(ctx, 1, whole(do[i]), &taken[i]); err != nil {
				return taken, err
			}
		}
	}
	return taken, nil
}

// beatTimes remembers how long the statements of beats took.
type beatTimes struct {
	renewals
	mu    sync.Mutex
	beats []beat
}

// beat is one statement.
type beat struct{ from, to time.Time }

type beatStart struct{}

// TraceRenewStart remembers when.
func (b *beatTimes) TraceRenewStart(ctx context.Context, _ pglock.TraceRenewStartData) context.Context {
	return context.WithValue(ctx, beatStart{}, time.Now())
}

// TraceRenewEnd counts.
func (b *beatTimes) TraceRenewEnd(ctx context.Context, _ pglock.TraceRenewEndData) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beats = append(b.beats, beat{ctx.Value(beatStart{}).(time.Time), time.Now()})
}

// start forgets those of before.
func (b *beatTimes) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beats = nil
}

func (b *beatTimes) taken() (taken []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, each := range b.beats {
		taken = append(taken, each.to.Sub(each.from))
	}
	return taken
}

// rounds joins statements that follow each other without a pause: they are one beat.
func (b *beatTimes) rounds() (taken []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var from, to time.Time
	for _, each := range b.beats {
		if each.from.Sub(to) > 20*time.Millisecond {
			if !from.IsZero() {
				taken = append(taken, to.Sub(from))
			}
			from = each.from
		}
		to = each.to
	}
	return append(taken, to.Sub(from))
}
