package bench

import (
	"context"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const crowdSize = 16

func measureFenced(ctx context.Context, e *env, r *Result) error { return e.measureFenced(ctx, r, 1) }

func measureFencedCrowd(ctx context.Context, e *env, r *Result) error {
	return e.measureFenced(ctx, r, crowdSize)
}

// measureFenced compares BEGIN, INSERT and COMMIT with a fence and without one, into
// the same table.
func (e *env) measureFenced(ctx context.Context, r *Result, clients int) error {
	insert, err := e.notes(ctx, e.row)
	if err != nil {
		return err
	}
	return e.duel(ctx, r, duel{
		clients: clients,
		ours: func(ctx context.Context, _ *pgxpool.Pool, client *pglock.Client) (op, error) {
			lease, err := client.Acquire(ctx, e.lease(e.row), nil)
			if err != nil {
				return nil, err
			}
			return inTx(insert, func(ctx context.Context) (pgx.Tx, error) { return lease.BeginTx(ctx, pgx.TxOptions{}) }), nil
		},
		plain: func(_ context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			return inTx(insert, pool.Begin), nil
		},
	})
}

// notes makes a table for rows without a meaning, and gives the INSERT of one.
func (e *env) notes(ctx context.Context, name string) (insert string, err error) {
	table, err := e.table(ctx, name, "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL")
	return "INSERT INTO " + table.Sanitize() + " (note) VALUES ($1)", err
}

// note is what is written.
const note = "about as long as what a row of an application is, give or take a few bytes"

// inTx is a transaction with one INSERT, as an application writes it.
func inTx(insert string, begin func(context.Context) (pgx.Tx, error)) op {
	return func(ctx context.Context) error {
		tx, err := begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insert, note); err != nil {
			rollback(ctx, tx)
			return err
		}
		return tx.Commit(ctx)
	}
}

func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // what went wrong before is told
}
