package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Growth is what an operation costs where there is little of something, and where there
// is much of it, on the same server in the same run.
type Growth struct {
	Of   string  `json:"of"` // what there is more of
	What string  `json:"what"`
	From Sample  `json:"from"`
	To   Sample  `json:"to"`
	P50  float64 `json:"p50_ratio"`
	P99  float64 `json:"p99_ratio"`
}

// Sample is how long an operation took at one size.
type Sample struct {
	Size  int     `json:"size"`
	P50US float64 `json:"p50_us"`
	P99US float64 `json:"p99_us"`
	// PerSecond is how many there were a second, of all clients; 0 where nobody asked.
	PerSecond float64 `json:"per_second,omitempty"`
	// ServerUS and ClientUS are the processor time of one: see Step.
	ServerUS float64 `json:"server_cpu_us,omitempty"`
	ClientUS float64 `json:"client_cpu_us,omitempty"`
}

// P50 is the median.
func (s Sample) P50() time.Duration { return microseconds(s.P50US) }

// P99 is what one in a hundred exceeds.
func (s Sample) P99() time.Duration { return microseconds(s.P99US) }

// Sizes are how much there is of each thing, where there is much.
type Sizes struct {
	Names   int `json:"names"`   // rows of gatepost.leases
	Held    int `json:"held"`    // leases of one client
	Keys    int `json:"keys"`    // rows of gatepost.idempotency_keys
	Waiters int `json:"waiters"` // clients that wait for one name
	Clients int `json:"clients"` // at once
}

// FullSize is what is called large here.
var FullSize = Sizes{Names: 1_000_000, Held: 100_000, Keys: 10_000_000, Waiters: 1000, Clients: 128}

// Scaled is a part of the sizes, but what still shows that something is read row by row.
func (s Sizes) Scaled(part float64) Sizes {
	of := func(n, least int) int { return max(int(float64(n)*part), least) }
	return Sizes{Names: of(s.Names, 2000), Held: of(s.Held, 100), Keys: of(s.Keys, 2000), Waiters: of(s.Waiters, 10), Clients: of(s.Clients, 16)}
}

// ScaleOptions say how much is measured. The zero value works.
type ScaleOptions struct {
	Sizes Sizes // defaults to FullSize
	// Turns is how often small and large are measured in turn. Defaults to 8; with fewer,
	// less is measured.
	Turns int
	// Progress is told what is done now. Defaults to nobody.
	Progress func(string)
}

// scale measures growth on two databases of one server: one with little in it, and one
// with much.
type scale struct {
	ScaleOptions
	small, large *house
	found        []Growth
}

// house is a database with so much in it.
type house struct {
	config      *pgxpool.Config
	pool        *pgxpool.Pool
	client      *pglock.Client
	store       *idem.Store
	names, keys int
}

// smallSize is how many names and keys there are where there is little.
const smallSize = 1000

// Scale measures what grows with what, on two databases of one server that are there
// for that alone: they must have Gatepost's schema, and are filled. It takes connections
// for all clients at once. What was measured until an error is returned with it.
func Scale(ctx context.Context, small, large *pgxpool.Config, opts ScaleOptions) (found []Growth, err error) {
	if opts.Sizes == (Sizes{}) {
		opts.Sizes = FullSize
	}
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	opts.Turns = orDefault(opts.Turns, 8)
	s := &scale{ScaleOptions: opts}
	if s.small, err = settle(ctx, small); err != nil {
		return nil, err
	}
	defer s.small.leave(ctx)
	if s.large, err = settle(ctx, large); err != nil {
		return nil, err
	}
	defer s.large.leave(ctx)
	for _, part := range []func(context.Context) error{s.ofClients, s.ofWaiters, s.ofHeld, s.ofNames, s.ofKeys} {
		if err := part(ctx); err != nil {
			return s.found, err
		}
	}
	return s.found, nil
}

func settle(ctx context.Context, cfg *pgxpool.Config) (*house, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = poolSize
	h := &house{config: cfg}
	var err error
	if h.pool, err = pgxpool.NewWithConfig(ctx, cfg.Copy()); err != nil {
		return nil, err
	}
	h.client, err = pglock.New(h.pool, pglock.Config{})
	if err == nil {
		h.store, err = idem.New(h.pool, idem.Config{})
	}
	if err == nil {
		_, err = h.pool.Exec(ctx, "CREATE TABLE public.notes (note text)")
	}
	if err != nil {
		h.pool.Close()
	}
	return h, err
}

func (h *house) leave(ctx context.Context) {
	closeClient(ctx, h.client)
	h.pool.Close()
}

// timed is an operation that says how long it took, without what prepares it.
type timed func(ctx context.Context) (time.Duration, error)

// whole times all of an operation.
func whole(do op) timed {
	return func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		err := do(ctx)
		return time.Since(start), err
	}
}

// grow compares an operation in both houses, n times each in 8 turns.
func (s *scale) grow(ctx context.Context, of, what string, from, to, n int, small, large timed) error {
	s.Progress(of + ": " + what)
	var taken [2][]time.Duration
	sides := [2]timed{small, large}
	for _, do := range sides { // doesn't count: it prepares statements, and reads into memory
		if err := several(ctx, max(n/40, 1), do, new([]time.Duration)); err != nil {
			return err
		}
	}
	for turn := range s.Turns {
		for i := range sides {
			i = (i + turn) % 2
			if err := several(ctx, max(n/8, 1), sides[i], &taken[i]); err != nil {
				return err
			}
		}
	}
	s.add(of, what, sample(from, taken[0]), sample(to, taken[1]))
	return nil
}

func several(ctx context.Context, n int, do timed, taken *[]time.Duration) error {
	for range n {
		took, err := do(ctx)
		if err != nil {
			return err
		}
		*taken = append(*taken, took)
	}
	return nil
}

func (s *scale) add(of, what string, from, to Sample) {
	s.found = append(s.found, Growth{
		Of: of, What: what, From: from, To: to,
		P50: to.P50US / max(from.P50US, 1), P99: to.P99US / max(from.P99US, 1),
	})
}

func sample(size int, taken []time.Duration) Sample {
	sorted := slices.Sorted(slices.Values(taken))
	if len(sorted) == 0 {
		return Sample{Size: size}
	}
	return Sample{Size: size, P50US: us(p50(sorted)), P99US: us(sorted[min(len(sorted)*99/100, len(sorted)-1)])}
}

// fill runs an INSERT of generated rows from $1 to $2, in parts, and has the planner
// learn of them.
func (s *scale) fill(ctx context.Context, h *house, table, insert string, n int) error {
	const part = 100_000
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return err
	}
	for from := 1; err == nil && from <= n; from += part {
		s.Progress("filling " + table)
		_, err = conn.Exec(ctx, insert, from, min(from+part-1, n))
	}
	if err == nil {
		_, err = conn.Exec(ctx, "VACUUM ANALYZE "+table)
	}
	_, reset := conn.Exec(ctx, "RESET synchronous_commit")
	return errors.Join(err, reset)
}
