package bench

import (
	"context"
	"slices"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Names of what is counted.
const (
	statements = "statements"
	roundTrips = "round trips"
	xids       = "xids" // transaction ids that were given out
	walBytes   = "WAL bytes"
	fsyncs     = "fsyncs"    // of the WAL
	buffers    = "buffers"   // of tables and indexes that were read or written, in memory or not
	tries      = "tries"     // to acquire
	cold       = "% not HOT" // of the updates
)

// work is what one operation made the connections and the server do.
type work struct{ statements, trips, xids, wal, fsyncs, buffers float64 }

// errand is an operation to be counted.
type errand struct {
	do op
	// before is done before each, and doesn't count; nil is nothing.
	before op
	// windows is how many there are, at most; 0 is the usual.
	windows int
}

// Work is counted in several windows of a few operations, or of one that something has
// to be done before.
const (
	windows    = 9
	fewWindows = 3 // where the server's statistics come late
	windowOps  = 20
)

// tally is connections whose work is counted.
type tally struct {
	*counter
	pools []*pgxpool.Pool // those that work, and the one that reads what the server counted
}

// counted runs fn on a pool and a client of it, all of whose work is counted: what the
// client sends on control connections of its own too.
func (e *env) counted(ctx context.Context, fn func(*tally, *pgxpool.Pool, *pglock.Client) error) error {
	cfg, counter := counting(e.config)
	control, err := pgxpool.NewWithConfig(ctx, cfg.Copy())
	if err != nil {
		return err
	}
	defer control.Close()
	return e.with(ctx, cfg, pglock.Config{Control: control}, func(pool *pgxpool.Pool, client *pglock.Client) error {
		return fn(&tally{counter, []*pgxpool.Pool{e.admin, pool, control}}, pool, client)
	})
}

// count finds out what an operation costs on counted connections. What connections send
// is the median of the windows: what goes on behind an operation may come to the next
// one. Of what the server does the least counts: others at the same moment, and what it
// does by itself, can only add to it.
func (e *env) count(ctx context.Context, t *tally, do errand) (work, error) {
	n := orDefault(do.windows, windows)
	if e.version < forcedReports {
		n = fewWindows
	}
	// The first prepares its statements, and meets what was there before.
	_, at, err := e.window(ctx, t, do, position{})
	var all []work
	for i := 0; err == nil && i < n; i++ {
		var w work
		w, at, err = e.window(ctx, t, do, at)
		all = append(all, w)
	}
	if err != nil {
		return work{}, err
	}
	each := func(of func(work) float64) (values []float64) {
		for _, w := range all {
			values = append(values, of(w))
		}
		return values
	}
	return work{
		statements: medianOf(each(func(w work) float64 { return w.statements })),
		trips:      medianOf(each(func(w work) float64 { return w.trips })),
		xids:       slices.Min(each(func(w work) float64 { return w.xids })),
		wal:        slices.Min(each(func(w work) float64 { return w.wal })),
		fsyncs:     slices.Min(each(func(w work) float64 { return w.fsyncs })),
		buffers:    slices.Min(each(func(w work) float64 { return w.buffers })),
	}, nil
}

// window counts from a position on, and gives the one at its end.
func (e *env) window(ctx context.Context, t *tally, do errand, from position) (w work, to position, err error) {
	n := windowOps
	if do.before != nil {
		n = 1
		if err := do.before(ctx); err != nil {
			return w, to, err
		}
		if from, err = e.position(ctx, t); err != nil {
			return w, to, err
		}
	}
	each := func(count int64) float64 { return float64(count) / float64(n) }
	sent, trips := t.total(), t.trips.Load()
	if _, err := repeat(ctx, n, do.do); err != nil {
		return w, to, err
	}
	if err := t.settle(ctx); err != nil {
		return w, to, err
	}
	w.statements, w.trips = each(t.total()-sent), each(t.trips.Load()-trips)
	to, err = e.position(ctx, t)
	w.xids, w.wal = each(to.xid-from.xid), each(to.wal-from.wal)
	w.fsyncs, w.buffers = each(to.fsyncs-from.fsyncs), each(to.buffers-from.buffers)
	return w, to, err
}

// settle waits until no connection is used, neither for what goes on behind an
// operation.
func (t *tally) settle(ctx context.Context) error {
	for {
		if err := t.counter.settle(ctx); err != nil {
			return err
		}
		if !slices.ContainsFunc(t.pools, func(p *pgxpool.Pool) bool { return p.Stat().AcquiredConns() > 0 }) {
			return nil
		}
	}
}

// settle waits for what goes on behind an operation, such as waking a waiter.
func (c *counter) settle(ctx context.Context) error {
	for before := int64(-1); before != c.trips.Load(); {
		before = c.trips.Load()
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// counts lists ours, beside the plain one's where there is one.
func counts(ours work, plain *work) (list []Count) {
	for _, kind := range []struct {
		what string
		of   func(work) float64
	}{
		{statements, func(w work) float64 { return w.statements }},
		{roundTrips, func(w work) float64 { return w.trips }},
		{xids, func(w work) float64 { return w.xids }},
		{walBytes, func(w work) float64 { return w.wal }},
		{fsyncs, func(w work) float64 { return w.fsyncs }},
		{buffers, func(w work) float64 { return w.buffers }},
	} {
		count := Count{What: kind.what, Each: kind.of(ours)}
		if plain != nil {
			count.Plain = new(kind.of(*plain))
		}
		list = append(list, count)
	}
	return list
}
