package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestInTx_CommitsOrRollsBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := table(t, pool)
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	if err := l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "kept") }); err != nil {
		t.Fatal(err)
	}
	want := errors.New("of fn")
	err := l.InTx(t.Context(), func(tx pgx.Tx) error {
		if err := insert(t.Context(), tx, table, "undone"); err != nil {
			return err
		}
		return want
	})
	if err != want { //nolint:errorlint // it comes back as it is
		t.Errorf("InTx = %v, want fn's own error", err)
	}
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v, want the value unchanged", got)
			}
		}()
		_ = l.InTx(t.Context(), func(tx pgx.Tx) error {
			_ = insert(t.Context(), tx, table, "undone")
			panic("boom")
		})
	}()
	if got := value[string](t, pool, "SELECT string_agg(note, ',') FROM "+table); got != "kept" {
		t.Errorf("rows: %s", got)
	}
}

// Rule F3: for this transaction only, and only where stricter than what is set.
func TestBeginTx_LimitsTheTransactionAndNothingElse(t *testing.T) {
	t.Parallel()
	names := []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"}
	version := value[int](t, pgtest.Pool(t), `SELECT current_setting('server_version_num')::int`)
	if version >= 170000 {
		names = append(names, "transaction_timeout")
	}
	for before, inside := range map[string]string{"0": "7s", "5s": "5s", "7s": "7s", "1min": "7s"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			change := []func(*pgxpool.Config){maxConns(1)}
			for _, name := range names {
				change = append(change, setting(name, before))
			}
			pool := poolWith(t, pgtest.URL(t), change...)
			c := client(t, pool, pglock.Config{FenceTimeout: 7 * time.Second})
			l := acquire(t, c, pgtest.Name(t), nil)
			check := func(db pglock.DBTX, want string) {
				t.Helper()
				for _, name := range names {
					var got string
					if err := db.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if got != want {
						t.Errorf("%s = %s, want %s", name, got, want)
					}
				}
			}
			for _, level := range levels {
				tx, err := l.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				check(tx, inside)
				commit(t, tx)
				check(pool, before)
			}
		})
	}
}

// A fenced transaction that hangs is ended, however it hangs, and its connection
// doesn't come back to the pool.
func TestInTx_IsEndedAtFenceTimeout(t *testing.T) {
	t.Parallel()
	const limit = 400 * time.Millisecond
	for what, hang := range map[string]func(*testing.T, pgx.Tx, string) error{
		"in pg_sleep": func(t *testing.T, tx pgx.Tx, _ string) error {
			_, err := tx.Exec(t.Context(), `SELECT pg_sleep(30)`)
			return err
		},
		"in a loop of statements": func(t *testing.T, tx pgx.Tx, _ string) error {
			for {
				if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.05)`); err != nil {
					return err
				}
			}
		},
		"in a lock wait": func(t *testing.T, tx pgx.Tx, locked string) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE "+locked)
			return err
		},
		"in the client": func(t *testing.T, tx pgx.Tx, _ string) error {
			eventually(t, "the end of its connection", 10*time.Second, func() bool {
				return value[int](t, pgtest.Pool(t), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int32(tx.Conn().PgConn().PID())) == 0
			})
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pool := poolWith(t, pgtest.URL(t), maxConns(2))
			locked, name := table(t, pool), pgtest.Name(t)
			other := begin(t, pool, pgx.TxOptions{})
			if _, err := other.Exec(t.Context(), "LOCK TABLE "+locked); err != nil {
				t.Fatal(err)
			}
			c := client(t, pool, pglock.Config{FenceTimeout: limit})
			l := acquire(t, c, name, nil)
			began := time.Now()
			err := l.InTx(t.Context(), func(tx pgx.Tx) error { return hang(t, tx, locked) })
			wantErr(t, err, pglock.ErrFenceTimeout)
			if took := time.Since(began); took > limit+5*time.Second {
				t.Errorf("took %s", took)
			}
			expire(t, pool, name) // the row is free of the fence
			eventually(t, "takeover", 5*time.Second, func() bool {
				_, err := c.TryAcquire(t.Context(), name, nil)
				return err == nil
			})
			for range 3 {
				if !value[bool](t, pool, `SELECT pg_current_xact_id_if_assigned() IS NULL`) {
					t.Error("a connection came back with its transaction")
				}
			}
		})
	}
}

// The beginning is bounded too: the server may have given the lock long before
// its answer arrives.
func TestBeginTx_IsBoundedWhileItWaits(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{FenceTimeout: 200 * time.Millisecond}), name, nil)
	lockRow(t, pool, name)
	_, err := l.BeginTx(t.Context(), pgx.TxOptions{})
	if state := sqlState(err); !errors.Is(err, pglock.ErrFenceTimeout) && state != "55P03" {
		t.Errorf("BeginTx: %v", err)
	}
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// A watchdog that fires while a transaction ends must not cut the connection
// under whoever has it next.
func TestInTx_WatchdogNeverCutsAConnectionThatWasGivenBack(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	c := client(t, pool, pglock.Config{TTL: time.Minute, FenceTimeout: 20 * time.Millisecond})
	l := acquire(t, c, pgtest.Name(t), nil)
	for i := range 40 {
		end := time.Now().Add(19*time.Millisecond + time.Duration(i)*30*time.Microsecond)
		err := l.InTx(t.Context(), func(pgx.Tx) error {
			for time.Now().Before(end) { // a sleep is not exact enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, pglock.ErrFenceTimeout) {
			t.Fatalf("InTx: %v", err)
		}
		if err := pool.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)); err != nil {
			t.Fatalf("the next user of the connection: %v", err)
		}
	}
}

func TestBeginTx_RefusalLeavesTheConnectionUsable(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, asleep(t, pool), name, nil)
	seq := l.Sequencer()
	expire(t, pool, name)
	pid := value[int](t, pool, `SELECT pg_backend_pid()`)
	for _, change := range []string{
		`SELECT $1::text`, // expired
		`UPDATE gatepost.leases SET token = token + 1 WHERE name = $1`,
		`DELETE FROM gatepost.leases WHERE name = $1`,
	} {
		exec(t, pool, change, name)
		wantErr(t, asleep(t, pool).InTx(t.Context(), seq, nothing), pglock.ErrFenced)
		if got := value[int](t, pool, `SELECT pg_backend_pid()`); got != pid {
			t.Fatal("a refused fence cost its connection")
		}
	}
}

func TestBeginTx_IsAPgxTxInEveryWay(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	table, ctx := table(t, pool), t.Context()
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	tx, err := l.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nested, err := tx.Begin(ctx)
	must(err)
	must(insert(ctx, nested, table, "undone"))
	must(nested.Rollback(ctx))
	nested, err = tx.Begin(ctx)
	must(err)
	must(insert(ctx, nested, table, "nested"))
	must(nested.Commit(ctx))
	n, err := tx.CopyFrom(ctx, pgx.Identifier{table[1 : len(table)-1]}, []string{"note"}, pgx.CopyFromRows([][]any{{"copied"}, {"copied"}}))
	if err != nil || n != 2 {
		t.Fatalf("CopyFrom: %d, %v", n, err)
	}
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO " + table + " VALUES ('batch')")
	batch.Queue("SELECT count(*) FROM " + table)
	must(tx.SendBatch(ctx, batch).Close())
	objects := tx.LargeObjects()
	id, err := objects.Create(ctx, 0)
	must(err)
	must(objects.Unlink(ctx, id))
	_, err = tx.Prepare(ctx, "counted", "SELECT count(*) FROM "+table)
	must(err)
	var count int
	must(tx.Conn().QueryRow(ctx, "counted").Scan(&count))
	if count != 4 {
		t.Errorf("%d rows, want 4", count)
	}
	must(tx.Commit(ctx))
	for _, err := range []error{tx.Commit(ctx), tx.Rollback(ctx), insert(ctx, tx, table, "late")} {
		wantErr(t, err, pgx.ErrTxClosed)
	}
	if got := rows(t, pool, table); got != 4 {
		t.Errorf("%d rows after the commit, want 4", got)
	}
	tx, err = l.BeginTx(ctx, pgx.TxOptions{})
	must(err)
	must(tx.Rollback(ctx))
	for _, err := range []error{tx.Rollback(ctx), tx.Commit(ctx)} {
		wantErr(t, err, pgx.ErrTxClosed)
	}
}

func TestInTx_CommitThatFailsCommitsNothing(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	parent, child := table(t, pool), table(t, pool)
	exec(t, pool, "ALTER TABLE "+parent+" ADD PRIMARY KEY (note)")
	exec(t, pool, fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (note) REFERENCES %s DEFERRABLE INITIALLY DEFERRED", child, parent))
	pid := value[int](t, pool, `SELECT pg_backend_pid()`)

	err := l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, child, "orphan") })
	if sqlState(err) != "23503" {
		t.Errorf("deferred constraint: %v", err)
	}
	err = l.InTx(t.Context(), func(tx pgx.Tx) error {
		_, _ = tx.Exec(t.Context(), `SELECT 1/0`) // and the error is ignored
		return nil
	})
	wantErr(t, err, pgx.ErrTxCommitRollback)

	ctx, cancel := context.WithCancel(t.Context())
	err = l.InTx(ctx, func(tx pgx.Tx) error {
		defer cancel()
		return insert(ctx, tx, parent, "late")
	})
	wantErr(t, err, context.Canceled)
	if rows(t, pool, child)+rows(t, pool, parent) != 0 {
		t.Error("something was committed")
	}
	if got := value[int](t, pool, `SELECT pg_backend_pid()`); got != pid {
		t.Error("the connection was lost")
	}
}
