package bench

import (
	"context"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RatioOf sums pairs of durations up.
func RatioOf(ours, plain []time.Duration) Ratio { return *ratioOf(ours, plain) }

// Work is what one operation made its connections and the server do.
type Work struct{ Statements, Trips, XIDs, WAL float64 }

// WorkOf counts an operation that is prepared on a counted pool and a client of it.
func WorkOf(ctx context.Context, cfg *pgxpool.Config, prepare func(*pgxpool.Pool, *pglock.Client) (func(context.Context) error, error)) (Work, error) {
	e, err := open(ctx, cfg, Options{}.withDefaults())
	if err != nil {
		return Work{}, err
	}
	defer func() { _ = e.close(ctx) }()
	var w work
	counted, counter := counting(cfg)
	err = e.with(ctx, counted, pglock.Config{}, func(pool *pgxpool.Pool, client *pglock.Client) error {
		do, err := prepare(pool, client)
		if err != nil {
			return err
		}
		w, err = e.count(ctx, counter, do)
		return err
	})
	return Work{w.statements, w.trips, w.xids, w.wal}, err
}
