package bench

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Names of what is counted.
const (
	statements = "statements"
	roundTrips = "round trips"
	xids       = "xids" // transaction ids that were given out
	walBytes   = "WAL bytes"
	tries      = "tries"     // to acquire
	cold       = "% not HOT" // of the updates
)

// work is what one operation made the connections and the server do.
type work struct{ statements, trips, xids, wal float64 }

// Work is counted in several windows of a few operations.
const (
	windows   = 9
	windowOps = 20
)

// count finds out what an operation costs on counted connections. What connections send
// is the median of the windows: what goes on behind an operation may come to the next
// one. Of what the server writes the least counts: others who write at the same moment,
// and what the server does by itself, can only add to it.
func (e *env) count(ctx context.Context, c *counter, do op) (work, error) {
	var all []work
	for range windows + 1 {
		w, err := e.window(ctx, c, do)
		if err != nil {
			return work{}, err
		}
		all = append(all, w)
	}
	all = all[1:] // the first prepares its statements, and meets what was there before
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
	}, nil
}

func (e *env) window(ctx context.Context, c *counter, do op) (work, error) {
	sent, trips := c.total(), c.trips.Load()
	before, err := written(ctx, e.admin)
	if err != nil {
		return work{}, err
	}
	if _, err := repeat(ctx, windowOps, do); err != nil {
		return work{}, err
	}
	if err := c.settle(ctx); err != nil {
		return work{}, err
	}
	after, err := written(ctx, e.admin)
	each := func(n int64) float64 { return float64(n) / windowOps }
	return work{
		statements: each(c.total() - sent), trips: each(c.trips.Load() - trips),
		xids: each(after.xid - before.xid), wal: each(after.wal - before.wal),
	}, err
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

// position is how far a server's log and its transactions are.
type position struct{ wal, xid int64 }

// written reads the position. It takes no transaction id itself.
func written(ctx context.Context, pool *pgxpool.Pool) (p position, err error) {
	err = pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&p.wal, &p.xid)
	return p, err
}

// counts lists ours, beside the plain one's where there is one.
func counts(ours work, plain *work) []Count {
	if plain == nil {
		return []Count{{What: statements, Each: ours.statements}, {What: roundTrips, Each: ours.trips}, {What: xids, Each: ours.xids}, {What: walBytes, Each: ours.wal}}
	}
	return []Count{
		{What: statements, Each: ours.statements, Plain: &plain.statements},
		{What: roundTrips, Each: ours.trips, Plain: &plain.trips},
		{What: xids, Each: ours.xids, Plain: &plain.xids},
		{What: walBytes, Each: ours.wal, Plain: &plain.wal},
	}
}
