package bench

import (
	"context"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// prepare makes an operation on a pool and a client of that pool.
type prepare func(ctx context.Context, pool *pgxpool.Pool, client *pglock.Client) (op, error)

// duel is a comparison of two operations.
type duel struct {
	ours, plain prepare
	clients     int // at once; 0 is one, whose work is counted too
}

// duel times the two on one pool, and then counts their work on another one.
func (e *env) duel(ctx context.Context, r *Result, d duel) error {
	err := e.with(ctx, e.config, pglock.Config{}, func(pool *pgxpool.Pool, client *pglock.Client) (err error) {
		ours, plain, err := d.prepare(ctx, pool, client)
		if err == nil {
			r.Ratio, err = d.compare(ctx, e, ours, plain)
		}
		return err
	})
	if err != nil || d.clients > 1 {
		return err
	}
	return e.counted(ctx, func(c *tally, pool *pgxpool.Pool, client *pglock.Client) error {
		ours, plain, err := d.prepare(ctx, pool, client)
		if err != nil {
			return err
		}
		mine, err := e.count(ctx, c, errand{do: ours})
		if err != nil {
			return err
		}
		theirs, err := e.count(ctx, c, errand{do: plain})
		r.Counts = counts(mine, &theirs)
		return err
	})
}

func (d duel) prepare(ctx context.Context, pool *pgxpool.Pool, client *pglock.Client) (ours, plain op, err error) {
	if ours, err = d.ours(ctx, pool, client); err != nil {
		return nil, nil, err
	}
	plain, err = d.plain(ctx, pool, client)
	return ours, plain, err
}

func (d duel) compare(ctx context.Context, e *env, ours, plain op) (*Ratio, error) {
	if d.clients > 1 {
		return e.compare(ctx, 1, crowd(d.clients, ours), crowd(d.clients, plain))
	}
	return e.compare(ctx, e.turns(), oneByOne(ours), oneByOne(plain))
}
