package bench

import (
	"context"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureRenewal compares a renewal while 16 clients write under the lease with one
// while they write without it: a fence that its own holder's heartbeat has to wait for
// would show here.
func measureRenewal(ctx context.Context, e *env, r *Result) error {
	insert, err := e.notes(ctx, e.row)
	if err != nil {
		return err
	}
	return e.with(ctx, e.config, pglock.Config{}, func(pool *pgxpool.Pool, client *pglock.Client) error {
		lease, err := client.Acquire(ctx, e.lease(e.row), nil)
		if err != nil {
			return err
		}
		fenced := inTx(insert, func(ctx context.Context) (pgx.Tx, error) { return lease.BeginTx(ctx, pgx.TxOptions{}) })
		r.Ratio, err = e.compare(ctx, 1, among(fenced, lease.Renew), among(inTx(insert, pool.Begin), lease.Renew))
		return err
	})
}

// among is a block of an operation while 16 clients run another one.
func among(others, do op) block {
	return func(ctx context.Context, n int) ([]time.Duration, error) {
		w := startWriters(ctx, crowdSize, 2*crowdSize, others, nil)
		if _, err := w.busy(ctx); err != nil {
			_ = w.stop()
			return nil, err
		}
		took, err := oneByOne(do)(ctx, max(n/4, 2))
		if stopped := w.stop(); err == nil {
			err = stopped
		}
		return took, err
	}
}
