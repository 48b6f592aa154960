package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureCycle compares an acquisition and a release, which are two durable commits,
// with the least that two durable commits can be.
func measureCycle(ctx context.Context, e *env, r *Result) error {
	table, err := e.table(ctx, "cycle", "name text PRIMARY KEY, n bigint NOT NULL")
	if err != nil {
		return err
	}
	if _, err := e.admin.Exec(ctx, "INSERT INTO "+table.Sanitize()+" VALUES ($1, 0)", e.lease("cycle")); err != nil {
		return err
	}
	update := "UPDATE " + table.Sanitize() + " SET n = n + 1 WHERE name = $1"
	return e.duel(ctx, r, duel{
		ours: func(_ context.Context, _ *pgxpool.Pool, client *pglock.Client) (op, error) {
			return cycle(client, e.lease("cycle")), nil
		},
		plain: func(_ context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			return func(ctx context.Context) error {
				for range 2 {
					if _, err := pool.Exec(ctx, update, e.lease("cycle")); err != nil {
						return err
					}
				}
				return nil
			}, nil
		},
	})
}

// cycle acquires and releases.
func cycle(client *pglock.Client, name string) op {
	return func(ctx context.Context) error {
		lease, err := client.Acquire(ctx, name, nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// measureTry counts what a try costs that finds the lease held: two reads.
func measureTry(ctx context.Context, e *env, r *Result) error {
	name := e.lease("try")
	return e.with(ctx, e.config, pglock.Config{}, func(_ *pgxpool.Pool, holder *pglock.Client) error {
		if _, err := holder.TryAcquire(ctx, name, nil); err != nil {
			return err
		}
		return e.counted(ctx, func(c *tally, _ *pgxpool.Pool, other *pglock.Client) error {
			mine, err := e.count(ctx, c, errand{do: func(ctx context.Context) error {
				_, err := other.TryAcquire(ctx, name, nil)
				if err == nil {
					return fmt.Errorf("%s was to be held, but could be had", name)
				}
				return ignore(err, pglock.ErrHeld)
			}})
			r.Counts = counts(mine, nil)
			for i, c := range r.Counts {
				if c.What == xids || c.What == walBytes || c.What == fsyncs {
					r.Counts[i].Bar = new(0.0)
				}
			}
			return err
		})
	})
}

// ignore takes an error that was to be expected for none.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
