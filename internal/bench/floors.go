package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Floor shows what an operation consists of: steps from the plain statements to the whole
// of it, each with one part more, which run in turns.
type Floor struct {
	Row   string `json:"row"` // of Rows
	Steps []Step `json:"steps"`
	Plans []Plan `json:"plans"`
}

// Step is one of them.
type Step struct {
	What string `json:"what"`
	// Ratio is to the first step.
	Ratio *Ratio `json:"ratio"`
	// ServerUS and ClientUS are processor time, of the backends and of this process, in
	// microseconds; the server's only where it runs on this machine, with Linux. A machine
	// that does other things too makes these last longer by little.
	ServerUS float64 `json:"server_cpu_us,omitempty"`
	ClientUS float64 `json:"client_cpu_us,omitempty"`
	Counts   []Count `json:"counts"`
}

// Plan is what PostgreSQL says that it does for a statement of Gatepost's.
type Plan struct {
	Statement string   `json:"statement"` // its name in queries/
	Lines     []string `json:"lines"`     // of EXPLAIN (ANALYZE, BUFFERS, WAL)
}

// floor is how a Floor is made.
type floor struct {
	row   string
	steps func(context.Context, *env, *pgxpool.Pool, *pglock.Client) ([]step, error)
	plans func(context.Context, *env, *explainer, *pglock.Client) error // nil for none
}

type step struct {
	what string
	do   op
}

// Floors measures the floors of the rows whose bars are hard to reach, as Run does.
func Floors(ctx context.Context, cfg *pgxpool.Config, opts Options) (server Server, found []Floor, err error) {
	e, err := open(ctx, cfg, opts.withDefaults())
	if err != nil {
		return server, nil, err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	if server, err = look(ctx, e.admin); err != nil {
		return server, nil, err
	}
	for _, f := range floors {
		one, err := e.floor(ctx, f)
		if err != nil {
			return server, found, fmt.Errorf("floor of %s: %w", f.row, err)
		}
		found = append(found, one)
	}
	return server, found, nil
}

func (e *env) floor(ctx context.Context, f floor) (found Floor, err error) {
	e.row, found.Row = f.row, f.row
	cpu := &costs{}
	err = e.with(ctx, cpu.on(e.config), pglock.Config{}, func(pool *pgxpool.Pool, client *pglock.Client) error {
		steps, err := f.steps(ctx, e, pool, client)
		if err == nil {
			found.Steps, err = e.climb(ctx, steps, pool, cpu)
		}
		if err == nil {
			found.Plans, err = e.explain(ctx, f, client)
		}
		return err
	})
	if err != nil {
		return found, err
	}
	return found, e.counted(ctx, func(t *tally, pool *pgxpool.Pool, client *pglock.Client) error {
		steps, err := f.steps(ctx, e, pool, client)
		for i := 0; err == nil && i < len(steps); i++ {
			var w work
			w, err = e.count(ctx, t, errand{do: steps[i].do})
			found.Steps[i].Counts = counts(w, nil)
		}
		return err
	})
}

// climb times the steps in turns, each turn from another one on.
func (e *env) climb(ctx context.Context, steps []step, pool *pgxpool.Pool, cpu *costs) ([]Step, error) {
	medians, used := make([][]time.Duration, len(steps)), make([]spent, len(steps))
	for pair := range e.Pairs + 1 { // the first prepares
		e.Progress(e.row, pair, e.Pairs)
		taken := make([][]time.Duration, len(steps))
		for at := range e.turns() * len(steps) {
			i := (at + at/len(steps)) % len(steps)
			before := cpu.now()
			durations, err := repeat(ctx, min(turn, e.Block), steps[i].do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", steps[i].what, err)
			}
			for pool.Stat().AcquiredConns() > 0 { // what goes on behind is its own
				if err := pause(ctx, time.Millisecond/10); err != nil {
					return nil, err
				}
			}
			taken[i] = append(taken[i], durations...)
			if pair > 0 {
				used[i].add(cpu.now().less(before), len(durations))
			}
		}
		for i := range steps {
			if pair > 0 {
				medians[i] = append(medians[i], p50(taken[i]))
			}
		}
	}
	climbed := make([]Step, len(steps))
	for i, s := range steps {
		climbed[i] = Step{What: s.what, Ratio: ratioOf(medians[i], medians[0])}
		climbed[i].ServerUS, climbed[i].ClientUS = used[i].each()
	}
	return climbed, nil
}
