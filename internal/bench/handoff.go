package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// relayClients is how many clients the waiters belong to, like processes: a hand-off
// goes through the database.
const relayClients = 4

// handOff measures a lease that goes from one of many waiters to the next, from the
// call of Release to the return of the next one's Acquire.
func handOff(waiters int) func(context.Context, *env, *Result) error {
	return func(ctx context.Context, e *env, r *Result) error {
		err := e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, client *pglock.Client) error {
			return e.relay(ctx, e.config, waiters, func(relay *relay) (err error) {
				r.Ratio, err = e.compare(ctx, 1, relay.block, oneByOne(cycle(client, e.lease("cycle"))))
				return err
			})
		})
		if err != nil {
			return err
		}
		cfg, counter := counting(e.config)
		return e.relay(ctx, cfg, waiters, func(relay *relay) error {
			const n = 200
			if _, err := relay.block(ctx, n/4); err != nil {
				return err
			}
			if err := counter.settle(ctx); err != nil {
				return err
			}
			before := counter.snapshot()
			if _, err := relay.block(ctx, n); err != nil {
				return err
			}
			r.Counts = handOffCounts(before, counter.snapshot(), n)
			return nil
		})
	}
}

// handOffCounts counts what comes behind the releases: waking and acquiring.
func handOffCounts(before, after map[string]int64, n float64) []Count {
	var all int64
	for name := range after {
		if name != "WaiterHoldOff" && name != "LeaseFree" {
			all += after[name] - before[name]
		}
	}
	return []Count{
		{What: statements, Each: float64(all) / n, Bar: new(2.0)},
		{What: tries, Each: float64(after["LeaseTake"]-before["LeaseTake"]) / n},
	}
}

// relay is waiters that hand a lease on, as often as they are told to. In between, one
// of them has it.
type relay struct {
	name string
	runs chan int // how many hand-offs to make
	done chan relayed
	once sync.Once // of an error

	// mu is held by whoever has the lease, which the race detector doesn't know of.
	mu       sync.Mutex
	left     int
	released time.Time
	taken    []time.Duration
}

// relayed is what became of a block of hand-offs.
type relayed struct {
	taken []time.Duration
	err   error
}

// relay runs fn on a relay of waiters that already wait.
func (e *env) relay(ctx context.Context, cfg *pgxpool.Config, waiters int, fn func(*relay) error) error {
	var clients []*pglock.Client
	for range relayClients {
		pool, err := pgxpool.NewWithConfig(ctx, cfg.Copy())
		if err != nil {
			return err
		}
		defer pool.Close()
		client, err := pglock.New(pool, pglock.Config{})
		if err != nil {
			return err
		}
		defer closeClient(ctx, client)
		clients = append(clients, client)
	}
	r := &relay{name: e.lease(e.row), runs: make(chan int), done: make(chan relayed)}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range waiters + 1 { // one of them has it
		running.Go(func() { r.run(ctx, clients[i%relayClients]) })
	}
	defer running.Wait()
	defer cancel()
	return fn(r)
}

// block makes n hand-offs.
func (r *relay) block(ctx context.Context, n int) ([]time.Duration, error) {
	select {
	case r.runs <- n:
	case done := <-r.done:
		return nil, done.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case done := <-r.done:
		return done.taken, done.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run waits for the lease and hands it on, again and again.
func (r *relay) run(ctx context.Context, client *pglock.Client) {
	for {
		lease, err := client.Acquire(ctx, r.name, nil)
		if err == nil {
			r.arrived(ctx)
			err = lease.Release(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.fail(ctx, err)
			return
		}
	}
}

// arrived notes a hand-off, and holds the lease until there is one more to make.
func (r *relay) arrived(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left > 0 {
		r.taken = append(r.taken, time.Since(r.released))
		if r.left--; r.left == 0 {
			r.tell(ctx, relayed{taken: r.taken})
		}
	}
	if r.left == 0 {
		select {
		case r.left = <-r.runs:
			r.taken = nil
		case <-ctx.Done():
		}
	}
	r.released = time.Now()
}

func (r *relay) tell(ctx context.Context, what relayed) {
	select {
	case r.done <- what:
	case <-ctx.Done():
	}
}

// fail tells of the first error.
func (r *relay) fail(ctx context.Context, err error) {
	r.once.Do(func() { r.tell(ctx, relayed{err: fmt.Errorf("a waiter failed: %w", err)}) })
}
