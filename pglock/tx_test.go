package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

func TestBeginTx_RefusalLeavesTheConnectionUsable(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, asleep(t, pool), name, nil)
	seq := l.Sequencer()
	expire(t, pool, name)
	connects := pool.Stat().NewConnsCount()
	for _, change := range []string{
		`SELECT $1::text`, // expired
		`UPDATE gatepost.leases SET token = token + 1 WHERE name = $1`,
		`DELETE FROM gatepost.leases WHERE name = $1`,
	} {
		exec(t, pool, change, name)
		wantErr(t, asleep(t, pool).InTx(t.Context(), seq, nothing), pglock.ErrFenced)
		if pool.Stat().NewConnsCount() != connects {
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

// What InTx returns tells whether it was committed: so it is InTx that commits.
func TestInTx_FnCannotCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := table(t, pool)
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	refused := l.InTx(t.Context(), func(tx pgx.Tx) error {
		defer func() { _ = tx.Rollback(t.Context()) }()
		return errors.Join(insert(t.Context(), tx, table, "undone"), tx.Commit(t.Context()))
	})
	if refused == nil || !strings.Contains(refused.Error(), "ends when the function returns") {
		t.Errorf("InTx = %v, want what to do instead", refused)
	}
	undone := l.InTx(t.Context(), func(tx pgx.Tx) error {
		return errors.Join(insert(t.Context(), tx, table, "undone"), tx.Rollback(t.Context()))
	})
	if !errors.Is(undone, pgx.ErrTxClosed) {
		t.Errorf("InTx = %v, want %v", undone, pgx.ErrTxClosed)
	}
	nested := l.InTx(t.Context(), func(tx pgx.Tx) error {
		return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "kept") })
	})
	if nested != nil {
		t.Errorf("a nested one: %v", nested)
	}
	if got := value[string](t, pool, "SELECT string_agg(note, ',') FROM "+table); got != "kept" {
		t.Errorf("rows: %s", got)
	}
}

// A script that commits by itself takes what it writes after that out of the fence.
func TestInTx_EndedByItsTextIsAnError(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	for _, script := range []string{"COMMIT", "ROLLBACK", "BEGIN; SELECT 1; COMMIT; SELECT 2"} {
		var fenced pgx.Tx
		err := l.InTx(t.Context(), func(tx pgx.Tx) error {
			fenced = tx
			_, err := tx.Conn().PgConn().Exec(t.Context(), script).ReadAll()
			return err
		})
		wantErr(t, err, pglock.ErrFenceMisplaced)
		wantErr(t, fenced.Commit(t.Context()), pgx.ErrTxClosed)
		_, err = fenced.Exec(t.Context(), "SELECT 1")
		wantErr(t, err, pgx.ErrTxClosed)
		if n := pool.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%q: the connection was not given back", script)
		}
	}
	if err := l.InTx(t.Context(), nothing); err != nil || l.Err() != nil {
		t.Errorf("the next one: %v, %v", err, l.Err())
	}
}

func TestInTx_CommitThatFailsCommitsNothing(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	parent, child := table(t, pool), table(t, pool)
	exec(t, pool, "ALTER TABLE "+parent+" ADD PRIMARY KEY (note)")
	exec(t, pool, fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (note) REFERENCES %s DEFERRABLE INITIALLY DEFERRED", child, parent))
	connects := pool.Stat().NewConnsCount()

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
	if pool.Stat().NewConnsCount() != connects {
		t.Error("the connection was lost")
	}
}
