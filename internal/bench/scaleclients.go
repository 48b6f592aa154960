package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ofClients measures what grows with the clients that are at work at once, each like a
// process, with a pool and a name of its own: and what of that any commits would.
func (s *scale) ofClients(ctx context.Context) error {
	_, err := s.small.pool.Exec(ctx, `CREATE TABLE public.plain (client int PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 10);
		INSERT INTO public.plain SELECT i, 0 FROM generate_series(1, 1000) AS i`)
	if err != nil {
		return err
	}
	one, err := s.crowdOf(ctx, 1)
	if err != nil {
		return err
	}
	for _, n := range slices.Compact([]int{min(16, s.Sizes.Clients), s.Sizes.Clients}) {
		many, err := s.crowdOf(ctx, n)
		if err != nil {
			return err
		}
		s.add("clients", "acquire + release", one[0], many[0])
		s.add("clients", "two UPDATE commits", one[1], many[1])
	}
	return nil
}

// crowdOf has so many clients acquire and release, and then commit two updates of a row
// each, in turns, 1,000 times or more in all.
func (s *scale) crowdOf(ctx context.Context, n int) (found [2]Sample, err error) {
	s.Progress(fmt.Sprintf("clients: %d", n))
	ours, plain, cpu := make([]op, n), make([]op, n), &costs{}
	for i := range n {
		cfg := cpu.on(s.small.config)
		cfg.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return found, err
		}
		defer pool.Close()
		client, err := pglock.New(pool, pglock.Config{})
		if err != nil {
			return found, err
		}
		defer closeClient(ctx, client)
		ours[i] = cycle(client, fmt.Sprintf("client/%d", i))
		plain[i] = func(ctx context.Context) error {
			for range 2 {
				if _, err := pool.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE client = $1", i+1); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var taken [2][]time.Duration
	var took [2]time.Duration
	var used [2]spent
	for turn := range s.Turns + 1 {
		for side, do := range [][]op{ours, plain} {
			before := cpu.now()
			durations, all, err := atOnce(ctx, do, max(1000/n/s.Turns, 2))
			if err != nil {
				return found, err
			}
			if turn > 0 { // the first connects
				taken[side], took[side] = append(taken[side], durations...), took[side]+all
				used[side].add(cpu.now().less(before), len(durations))
			}
		}
	}
	for side := range found {
		found[side] = sample(n, taken[side])
		found[side].PerSecond = float64(len(taken[side])) / took[side].Seconds()
		found[side].ServerUS, found[side].ClientUS = used[side].each()
	}
	return found, nil
}

// atOnce runs operations at once, each so many times, and says how long all took.
func atOnce(ctx context.Context, do []op, each int) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	durations := make([][]time.Duration, len(do))
	start := time.Now()
	var working sync.WaitGroup
	for i := range do {
		working.Go(func() {
			var err error
			if durations[i], err = repeat(ctx, each, do[i]); err != nil {
				cancel(err)
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	return slices.Concat(durations...), time.Since(start), nil
}

// ofWaiters measures what grows with the clients that wait for one name. Their hand-offs
// are rows of Run.
func (s *scale) ofWaiters(ctx context.Context) error {
	const name = "waited-for"
	sizes := map[*house]int{s.small: 1, s.large: s.Sizes.Waiters}
	for h, n := range sizes {
		_, err := h.pool.Exec(ctx, `INSERT INTO gatepost.waiters (client, waiter, name, slot, holder, since, expires_at)
			SELECT 'scale-' || i, 1, $1, 0, 'elsewhere/' || i, now(), now() + interval '1 hour' FROM generate_series(1, $2::int) AS i`, name, n)
		if err != nil {
			return err
		}
	}
	for what, on := range map[string]func(*house) op{
		"acquire + release, which wakes one": func(h *house) op { return cycle(h.client, name) },
		"acquire + release of another name":  func(h *house) op { return cycle(h.client, "not-"+name) },
	} {
		if err := s.grow(ctx, "waiters", what, 1, s.Sizes.Waiters, 400, whole(on(s.small)), whole(on(s.large))); err != nil {
			return err
		}
	}
	for h := range sizes {
		if _, err := h.pool.Exec(ctx, "DELETE FROM gatepost.waiters"); err != nil {
			return err
		}
	}
	return nil
}
