package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// levels are the isolation levels that a fence has to hold at.
var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// asleep is a client whose heartbeats don't come in the way of a test.
func asleep(t *testing.T, pool *pgxpool.Pool) *pglock.Client {
	t.Helper()
	return client(t, pool, pglock.Config{RenewEvery: 20 * time.Second})
}

// parsed is a sequencer with another token or nonce.
func parsed(t *testing.T, text string) pglock.Sequencer {
	t.Helper()
	seq, err := pglock.ParseSequencer(text)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// Each way of losing a lease, and each way of writing with it: all refused.
func TestFence_RefusesTheStaleHolder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	sql := func(sql string) func(*testing.T, string, *pglock.Lease) {
		return func(t *testing.T, name string, _ *pglock.Lease) { exec(t, pool, sql, name) }
	}
	takeOver := func(t *testing.T, name string, _ *pglock.Lease) { acquire(t, asleep(t, pool), name, nil) }
	for what, c := range map[string]struct {
		lose   func(*testing.T, string, *pglock.Lease)
		reason error
	}{
		"lapsed": {func(t *testing.T, name string, _ *pglock.Lease) { expire(t, pool, name) }, pglock.ErrExpired},
		"taken over": {func(t *testing.T, name string, l *pglock.Lease) {
			expire(t, pool, name)
			takeOver(t, name, l)
		}, pglock.ErrSuperseded},
		"released": {sql(`UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`), pglock.ErrReleased},
		"deleted":  {sql(`DELETE FROM gatepost.leases WHERE name = $1`), pglock.ErrSuperseded},
		"deleted and made again": {func(t *testing.T, name string, l *pglock.Lease) {
			exec(t, pool, `DELETE FROM gatepost.leases WHERE name = $1`, name)
			takeOver(t, name, l)
		}, pglock.ErrSuperseded},
		"the same token again": {sql(`UPDATE gatepost.leases SET nonce = gen_random_uuid() WHERE name = $1`), pglock.ErrReleased},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			table := table(t, pool)
			for way, write := range writers(table) {
				name := pgtest.Name(t)
				l := acquire(t, asleep(t, pool), name, nil)
				c.lose(t, name, l)
				err := write(t, pool, l)
				if !errors.Is(err, pglock.ErrFenced) || !errors.Is(err, c.reason) {
					t.Errorf("%s: %v, want it to be fenced off as %v", way, err, c.reason)
				}
				if fenced, ok := errors.AsType[*pglock.FencedError](err); ok && fenced.Token != l.Token() {
					t.Errorf("%s: %+v", way, fenced)
				}
			}
			if n := rows(t, pool, table); n != 0 {
				t.Errorf("%d stale writes", n)
			}
		})
	}
}

// writers are the ways to write one row under a lease.
func writers(table string) map[string]func(*testing.T, *pgxpool.Pool, *pglock.Lease) error {
	write := func(t *testing.T) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "stale") }
	}
	ways := map[string]func(*testing.T, *pgxpool.Pool, *pglock.Lease) error{
		"Lease.InTx": func(t *testing.T, _ *pgxpool.Pool, l *pglock.Lease) error {
			return l.InTx(t.Context(), write(t))
		},
		"Client.InTx": func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			return asleep(t, pool).InTx(t.Context(), parsed(t, l.Sequencer().String()), write(t))
		},
	}
	for _, level := range levels {
		opts := pgx.TxOptions{IsoLevel: level}
		ways["BeginTx "+string(level)] = func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			tx, err := l.BeginTx(t.Context(), opts)
			if err != nil {
				return err
			}
			return errors.Join(write(t)(tx), tx.Commit(t.Context()))
		}
		ways["Fence "+string(level)] = func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			return pgx.BeginTxFunc(t.Context(), pool, opts, func(tx pgx.Tx) error {
				if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
					return err
				}
				return write(t)(tx)
			})
		}
	}
	return ways
}

func TestFence_PassesTheCurrentHolder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := table(t, pool)
	ways := writers(table)
	for way, write := range ways {
		if err := write(t, pool, acquire(t, asleep(t, pool), pgtest.Name(t), nil)); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
	if n := rows(t, pool, table); n != len(ways) {
		t.Errorf("%d rows, want %d", n, len(ways))
	}
}

// The classic: A fences and pauses before its write, B takes over. B waits for
// A's commit and sees its write. A plain SELECT as the fence fails here, and so
// does a takeover that isn't a key update.
func TestFence_TakeoverWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range levels {
		for _, own := range []bool{false, true} {
			what := "BeginTx "
			if own {
				what = "Fence "
			}
			t.Run(what+string(level), func(t *testing.T) {
				t.Parallel()
				name, table := pgtest.Name(t), table(t, pool)
				a, b := asleep(t, pool), asleep(t, pool)
				l := acquire(t, a, name, nil)
				tx := fenced(t, pool, l, own, level)
				expire(t, pool, name)

				_, err := b.TryAcquire(t.Context(), name, nil)
				held, ok := errors.AsType[*pglock.HeldError](err)
				if !ok || !held.Fenced || held.Token != l.Token() {
					t.Fatalf("takeover: %v; want a *HeldError with Fenced", err)
				}
				seen := make(chan int, 1)
				go func() {
					next, err := b.Acquire(context.WithoutCancel(t.Context()), name, nil)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						seen <- -1
						return
					}
					n := -1
					if err := next.InTx(context.WithoutCancel(t.Context()), func(tx pgx.Tx) error {
						return tx.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM "+table).Scan(&n)
					}); err != nil {
						t.Errorf("InTx: %v", err)
					}
					seen <- n
				}()
				if err := insert(t.Context(), tx, table, "A"); err != nil {
					t.Fatal(err)
				}
				select {
				case <-seen:
					t.Error("granted while A's fenced transaction was open")
				case <-time.After(100 * time.Millisecond): // several polls
				}
				commit(t, tx)
				if n := <-seen; n != 1 {
					t.Errorf("the next holder saw %d rows, want A's", n)
				}
			})
		}
	}
}

// fenced opens a fenced transaction, or fences one of the caller's own.
func fenced(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease, own bool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	opts := pgx.TxOptions{IsoLevel: level}
	if !own {
		tx, err := l.BeginTx(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	tx := begin(t, pool, opts)
	if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestRelease_PassesAnOpenFence(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := asleep(t, pool)
	l := acquire(t, c, name, nil)
	tx := fenced(t, pool, l, true, pgx.ReadCommitted)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Fatalf("Release: %v", err)
	}
	_, err := c.TryAcquire(t.Context(), name, nil)
	if held, ok := errors.AsType[*pglock.HeldError](err); !ok || !held.Fenced {
		t.Fatalf("%v; want a *HeldError with Fenced", err)
	}
	commit(t, tx)
	acquire(t, c, name, nil)
}

// Rule T: the fence waits for whoever has the row, and then reads the clock.
func TestFence_ExpiryIsReadAfterTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, fence := range map[string]func(*pglock.Lease) error{
		"BeginTx": func(l *pglock.Lease) error { return l.InTx(context.WithoutCancel(t.Context()), nothing) },
		"Fence": func(l *pglock.Lease) error {
			return pgx.BeginFunc(context.WithoutCancel(t.Context()), pool, func(tx pgx.Tx) error {
				return pglock.Fence(context.WithoutCancel(t.Context()), tx, l.Sequencer())
			})
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			name := pgtest.Name(t)
			l := acquire(t, asleep(t, pool), name, nil)
			other := lockRow(t, pool, name)
			if _, err := other.Exec(t.Context(), `UPDATE gatepost.leases SET expires_at = clock_timestamp() + interval '200 ms' WHERE name = $1`, name); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- fence(l) }()
			blocked(t, pool, other.Conn().PgConn().PID())
			waitForClock(t, pool, 250*time.Millisecond)
			commit(t, other)
			wantErr(t, <-done, pglock.ErrExpired)
		})
	}
}

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

// Rule F6: a fence in a transaction with an old snapshot.
func TestFence_InAnOldSnapshotRefusesASupersededToken(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		name := pgtest.Name(t)
		c := asleep(t, pool)
		l := acquire(t, c, name, nil)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases`); err != nil {
			t.Fatal(err)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
			t.Errorf("%s: after a renewal: %v", level, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}

		tx = begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases`); err != nil {
			t.Fatal(err)
		}
		expire(t, pool, name)
		acquire(t, c, name, nil)
		err := pglock.Fence(t.Context(), tx, l.Sequencer())
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrSuperseded)
	}
}

// Rule F1 depends on this index being just that.
func TestSchema_TokenIsInAPlainUniqueIndex(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	got := value[int](t, pool, `
		SELECT count(*) FROM pg_index
		WHERE indrelid = 'gatepost.leases'::regclass
			AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
			AND indnatts = indnkeyatts
			AND pg_get_indexdef(indexrelid) LIKE '% USING btree (name, slot, token)'`)
	if got != 1 {
		t.Errorf("%d plain unique indexes on (name, slot, token), want 1", got)
	}
	expiry := value[int](t, pool, `
		SELECT count(*) FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = 'gatepost.leases'::regclass AND a.attname IN ('expires_at', 'renewed_at')`)
	if expiry != 0 {
		t.Error("what a heartbeat changes is indexed: no renewal is HOT")
	}
}
