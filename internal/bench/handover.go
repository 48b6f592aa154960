package bench

import (
	"context"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureHandOff measures a lease that goes from one client to another that waits for
// it, and waits alone: from the call of Release to the return of the other's Acquire.
func measureHandOff(ctx context.Context, e *env, r *Result) error {
	return e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, holder *pglock.Client) error {
		err := e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, waiter *pglock.Client) (err error) {
			ours := func(ctx context.Context, n int) ([]time.Duration, error) {
				return e.handOvers(ctx, holder, waiter, max(n/4, 2), nil)
			}
			r.Ratio, err = e.compare(ctx, 1, ours, oneByOne(cycle(holder, e.lease("cycle"))))
			return err
		})
		if err != nil {
			return err
		}
		return e.countHandOff(ctx, r)
	})
}

func (e *env) countHandOff(ctx context.Context, r *Result) error {
	cfg, counter := counting(e.config)
	return e.with(ctx, cfg, pglock.Config{}, func(_ *pgxpool.Pool, holder *pglock.Client) error {
		return e.with(ctx, cfg, pglock.Config{}, func(_ *pgxpool.Pool, waiter *pglock.Client) error {
			const n = 20
			if _, err := e.handOvers(ctx, holder, waiter, 2, nil); err != nil { // LISTEN, and the first grant
				return err
			}
			s := &span{counter: counter, sum: map[string]int64{}}
			_, err := e.handOvers(ctx, holder, waiter, n, s)
			r.Counts = handOffCounts(nil, s.sum, n)
			return err
		})
	})
}

// handOvers makes n hand-offs, and says how long each took.
func (e *env) handOvers(ctx context.Context, holder, waiter *pglock.Client, n int, s *span) ([]time.Duration, error) {
	taken := make([]time.Duration, n)
	for i := range taken {
		var err error
		if taken[i], err = e.handOver(ctx, holder, waiter, s); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// handOver makes one hand-off, when the other one waits.
func (e *env) handOver(ctx context.Context, holder, waiter *pglock.Client, s *span) (took time.Duration, err error) {
	if err := e.waiting(ctx, 0); err != nil {
		return 0, err
	}
	lease, err := holder.Acquire(ctx, e.lease(e.row), nil)
	if err != nil {
		return 0, err
	}
	type grant struct {
		lease *pglock.Lease
		at    time.Time
		err   error
	}
	granted := make(chan grant, 1)
	go func() {
		lease, err := waiter.Acquire(ctx, e.lease(e.row), nil)
		granted <- grant{lease, time.Now(), err}
	}()
	if err = e.waiting(ctx, 1); err != nil {
		_ = lease.Release(context.WithoutCancel(ctx))
		<-granted
		return 0, err
	}
	s.begin()
	released := time.Now()
	if err = lease.Release(ctx); err != nil {
		<-granted
		return 0, err
	}
	got := <-granted
	s.end()
	if got.err != nil {
		return 0, got.err
	}
	return got.at.Sub(released), got.lease.Release(ctx)
}

// settled is long enough for a waiter that has registered to have looked again.
const settled = 3 * time.Millisecond

// waiting waits until so many clients wait for the row's lease.
func (e *env) waiting(ctx context.Context, n int) error {
	for {
		var clients int
		err := e.admin.QueryRow(ctx, `SELECT count(*) FROM gatepost.waiters WHERE name = $1`, e.lease(e.row)).Scan(&clients)
		if err != nil {
			return err
		}
		if err := pause(ctx, settled); err != nil || clients == n {
			return err
		}
	}
}
