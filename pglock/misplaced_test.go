package pglock_test

import (
	"context"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestFence_IsRefusedWhereItWouldNotHold(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	sql := func(t *testing.T, tx pgx.Tx, statements ...string) pglock.DBTX {
		t.Helper()
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		return tx
	}
	write := "INSERT INTO " + table(t, pool) + " VALUES ('x')"
	for what, c := range map[string]struct {
		open func(*testing.T) pglock.DBTX
		ok   bool
	}{
		"pool": {open: func(*testing.T) pglock.DBTX { return pool }},
		"pool's connection": {open: func(t *testing.T) pglock.DBTX {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Release)
			return conn
		}},
		"connection":        {open: func(t *testing.T) pglock.DBTX { return session(t, pool) }},
		"wrapper of a pool": {open: func(*testing.T) pglock.DBTX { return wrapper{pool} }},
		"wrapper of a tx":   {open: func(t *testing.T) pglock.DBTX { return wrapper{begin(t, pool, pgx.TxOptions{})} }, ok: true},
		"READ ONLY":         {open: func(t *testing.T) pglock.DBTX { return begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}) }},
		"savepoint":         {open: func(t *testing.T) pglock.DBTX { return sql(t, begin(t, pool, pgx.TxOptions{}), "SAVEPOINT a") }},
		"savepoint in a savepoint that wrote": {open: func(t *testing.T) pglock.DBTX {
			return sql(t, begin(t, pool, pgx.TxOptions{}), "SAVEPOINT a", "SAVEPOINT b", write, "RELEASE b")
		}},
		"savepoint after ROLLBACK TO it": {open: func(t *testing.T) pglock.DBTX {
			return sql(t, begin(t, pool, pgx.TxOptions{}), "SAVEPOINT a", write, "ROLLBACK TO a")
		}},
		"nested Begin": {open: func(t *testing.T) pglock.DBTX {
			nested, err := begin(t, pool, pgx.TxOptions{}).Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return nested
		}},
		// At the top level nothing can take the lock back.
		"after a savepoint that wrote and was released": {open: func(t *testing.T) pglock.DBTX {
			return sql(t, begin(t, pool, pgx.TxOptions{}), "SAVEPOINT a", write, "RELEASE a")
		}, ok: true},
		"BEGIN by hand": {open: func(t *testing.T) pglock.DBTX {
			conn := session(t, pool)
			if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
				t.Fatal(err)
			}
			return conn
		}, ok: true},
	} {
		t.Run(what, func(t *testing.T) {
			err := pglock.Fence(ctx, c.open(t), l.Sequencer())
			if c.ok && err != nil {
				t.Errorf("Fence: %v", err)
			}
			if !c.ok {
				wantErr(t, err, pglock.ErrFenceMisplaced)
			}
		})
	}
	_, err := l.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	wantErr(t, err, pglock.ErrFenceMisplaced)
	_, err = l.BeginTx(ctx, pgx.TxOptions{BeginQuery: "BEGIN"})
	wantErr(t, err, pglock.ErrFenceMisplaced)
	wantErr(t, pglock.Fence(ctx, begin(t, pool, pgx.TxOptions{}), pglock.Sequencer{}), pglock.ErrInvalidSequencer)
	wantErr(t, asleep(t, pool).InTx(ctx, pglock.Sequencer{}, nothing), pglock.ErrInvalidSequencer)
}

// wrapper hides what it wraps, as an application's own type does.
type wrapper struct{ db pglock.DBTX }

func (w wrapper) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return w.db.Exec(ctx, sql, args...)
}

func (w wrapper) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return w.db.Query(ctx, sql, args...)
}

func (w wrapper) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return w.db.QueryRow(ctx, sql, args...)
}
