package bench

import (
	"context"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Guards of the two kinds: of one lease for the table, which is tested once a
// statement, and of the lease that a column of each row names.
const (
	guardTable = "SELECT gatepost.guard_table($1::text::regclass, lease => $2)"
	guardRows  = "SELECT gatepost.guard_table($1::text::regclass, lease_column => 'lease')"
)

func measureGuard(ctx context.Context, e *env, r *Result) error {
	return e.measureGuard(ctx, r, guardTable, e.lease(e.row))
}

func measureGuardRows(ctx context.Context, e *env, r *Result) error {
	return e.measureGuard(ctx, r, guardRows)
}

// measureGuard compares one INSERT of many rows into a guarded table, under its lease,
// with one into a table without a guard, in a plain transaction.
func (e *env) measureGuard(ctx context.Context, r *Result, guard string, args ...any) error {
	return e.with(ctx, e.config, pglock.Config{}, func(pool *pgxpool.Pool, client *pglock.Client) error {
		lease, err := client.Acquire(ctx, e.lease(e.row), nil)
		if err != nil {
			return err
		}
		ours := e.fillSelect(func(ctx context.Context, table string) error {
			_, err := pool.Exec(ctx, guard, append([]any{table}, args...)...)
			return err
		}, lease.InTx)
		plain := e.fillSelect(nil, func(ctx context.Context, fn func(pgx.Tx) error) error {
			return pgx.BeginFunc(ctx, pool, fn)
		})
		r.Ratio, err = e.compare(ctx, 1, ours, plain)
		return err
	})
}

// fillSelect is a block of one INSERT ... SELECT into a new table that was prepared.
func (e *env) fillSelect(prepare func(ctx context.Context, table string) error, inTx func(context.Context, func(pgx.Tx) error) error) block {
	return func(ctx context.Context, _ int) ([]time.Duration, error) {
		table, err := e.table(ctx, "guarded", "lease text NOT NULL, n bigint NOT NULL, note text NOT NULL")
		if err == nil && prepare != nil {
			err = prepare(ctx, table.Sanitize())
		}
		if err != nil {
			return nil, err
		}
		taken, err := repeat(ctx, 1, func(ctx context.Context) error {
			return inTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO "+table.Sanitize()+" SELECT $1, i, $2 FROM generate_series(1, $3::int) AS i", e.lease(e.row), note, e.Load)
				return err
			})
		})
		if err == nil {
			_, err = e.admin.Exec(ctx, "DROP TABLE "+table.Sanitize())
		}
		return taken, err
	}
}
