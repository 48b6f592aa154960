package bench

import (
	"context"
	"errors"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RatioOf sums pairs of durations up.
func RatioOf(ours, plain []time.Duration) Ratio { return *ratioOf(ours, plain) }

// Work is what one operation made its connections and the server do.
type Work struct{ Statements, Trips, XIDs, WAL, FSyncs, Buffers float64 }

// Errand is an operation to be counted, what is done before each, which isn't, and what
// there is to do in the end; nil is nothing. Windows is how many are counted.
type Errand struct {
	Do, Before, After func(context.Context) error
	Windows           int
}

// WorkOf counts an operation that is prepared on a counted pool and a client of it.
func WorkOf(ctx context.Context, cfg *pgxpool.Config, prepare func(*pgxpool.Pool, *pglock.Client) (Errand, error)) (Work, error) {
	e, err := open(ctx, cfg, Options{}.withDefaults())
	if err != nil {
		return Work{}, err
	}
	defer func() { _ = e.close(ctx) }()
	var w work
	err = e.counted(ctx, func(c *tally, pool *pgxpool.Pool, client *pglock.Client) error {
		do, err := prepare(pool, client)
		if err != nil {
			return err
		}
		w, err = e.count(ctx, c, errand{do: do.Do, before: do.Before, windows: do.Windows})
		if do.After != nil {
			err = errors.Join(err, do.After(ctx))
		}
		return err
	})
	return Work{w.statements, w.trips, w.xids, w.wal, w.fsyncs, w.buffers}, err
}
