package incident

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// HOW NOT TO DO IT. This file is the lock of the incident: a table with a name
// and a deadline, as it is often written. Don't copy it; pglock is next door.

const naiveTable = `
	CREATE TABLE demo.naive_lease (name text PRIMARY KEY, holder text, expires_at timestamptz);`

// naiveGuard is a lease that its renewal does not check.
type naiveGuard struct {
	importing
	pool *pgxpool.Pool
}

func (g *naiveGuard) begin(ctx context.Context) (event, error) {
	tag, err := g.pool.Exec(ctx, g.scratch.sql(`INSERT INTO demo.naive_lease AS l (name, holder, expires_at)
		VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond')
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
		WHERE l.expires_at <= clock_timestamp()`), string(g.scratch), g.who, g.ttl.Microseconds())
	if err != nil {
		return event{}, err
	}
	if tag.RowsAffected() == 0 {
		return event{}, errors.New("the naive lease is held by another")
	}
	return g.position(ctx, g.pool)
}

// renew makes the mistake: it extends whoever's lease it is. With "AND holder =
// ..." it would be refused here, and a stop right after it would do the same harm.
func (g *naiveGuard) renew(ctx context.Context) error {
	tag, err := g.pool.Exec(ctx, g.scratch.sql(`UPDATE demo.naive_lease
		SET expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
		WHERE name = $1`), string(g.scratch), g.ttl.Microseconds())
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the naive renewal was refused, which it was made not to be")
	}
	return err
}

func (g *naiveGuard) write(ctx context.Context, first, last int64) (inserted, existed int64, err error) {
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		inserted, err = g.insert(ctx, tx, first, last)
		return err
	})
	return inserted, 0, err
}

func (g *naiveGuard) end(context.Context) error { return nil }
