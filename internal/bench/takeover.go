package bench

import (
	"context"
	"errors"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureTakeover lets a lease expire whose holder doesn't know and goes on with
// fenced transactions, 16 at a time, and compares how long the next holder has to wait
// after the expiry with how long one of those transactions takes.
func measureTakeover(ctx context.Context, e *env, r *Result) error {
	insert, err := e.notes(ctx, e.row)
	if err != nil {
		return err
	}
	return e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, holder *pglock.Client) error {
		return e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, next *pglock.Client) error {
			r.Ratio, err = e.pairs(ctx, func(ctx context.Context) (waited, length time.Duration, err error) {
				return e.takeover(ctx, holder, next, insert)
			})
			return err
		})
	})
}

func (e *env) takeover(ctx context.Context, holder, next *pglock.Client, insert string) (waited, length time.Duration, err error) {
	lease, err := holder.Acquire(ctx, e.lease(e.row), nil)
	if err != nil {
		return 0, 0, err
	}
	seq := lease.Sequencer() // the lease itself would know that it's over
	write := func(ctx context.Context) error {
		return holder.InTx(ctx, seq, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert, note)
			return err
		})
	}
	w := startWriters(ctx, crowdSize, 10*crowdSize, write, func(err error) bool { return errors.Is(err, pglock.ErrFenced) })
	defer func() { err = errors.Join(err, w.stop()) }()
	if length, err = w.busy(ctx); err != nil {
		return 0, 0, err
	}
	waited, err = e.awaitTakeover(ctx, next)
	return waited, length, err
}

// awaitTakeover lets the lease expire soon, and waits as the next holder does. Both
// moments are the database's.
func (e *env) awaitTakeover(ctx context.Context, next *pglock.Client) (time.Duration, error) {
	var expires time.Time
	err := e.admin.QueryRow(ctx, `UPDATE gatepost.leases SET expires_at = clock_timestamp() + interval '200 ms'
		WHERE name = $1 RETURNING expires_at`, e.lease(e.row)).Scan(&expires)
	if err != nil {
		return 0, err
	}
	lease, err := next.Acquire(ctx, e.lease(e.row), nil)
	if err != nil {
		return 0, err
	}
	info, err := next.Get(ctx, e.lease(e.row))
	if err != nil {
		return 0, err
	}
	return info.AcquiredAt.Sub(expires), lease.Release(ctx)
}
