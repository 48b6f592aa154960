package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/gatepost/gatepost/pglock/sqlfence"
	"github.com/jackc/pgx/v5/stdlib"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want one that matches %v", err, want)
	}
}

// setup is a lease, and the same database through database/sql.
func setup(t *testing.T) (*sql.DB, *pglock.Lease) {
	t.Helper()
	pool := pgtest.Pool(t)
	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
	lease, err := client.TryAcquire(t.Context(), pgtest.Name(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return db, lease
}

func begin(t *testing.T, db *sql.DB, opts *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestFence_PassesWhileHeldAndRefusesAfter(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		db, lease := setup(t)
		tx := begin(t, db, &sql.TxOptions{Isolation: level})
		if err := sqlfence.Fence(t.Context(), tx, lease.Sequencer()); err != nil {
			t.Fatalf("%s: %v", level, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := sqlfence.Fence(t.Context(), begin(t, db, &sql.TxOptions{Isolation: level}), lease.Sequencer())
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrReleased)
	}
}

func TestFence_RefusesWhereItWouldNotHold(t *testing.T) {
	t.Parallel()
	db, lease := setup(t)
	wantErr(t, sqlfence.Fence(t.Context(), db, lease.Sequencer()), pglock.ErrFenceMisplaced)
	readOnly := begin(t, db, &sql.TxOptions{ReadOnly: true})
	wantErr(t, sqlfence.Fence(t.Context(), readOnly, lease.Sequencer()), pglock.ErrFenceMisplaced)
	tx := begin(t, db, nil)
	if _, err := tx.ExecContext(t.Context(), "SAVEPOINT s"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, sqlfence.FenceAll(t.Context(), tx, lease.Sequencer()), pglock.ErrFenceMisplaced)
}

func TestAdvance_RefusesALowerToken(t *testing.T) {
	t.Parallel()
	db, _ := setup(t)
	resource := pgtest.Name(t)
	tx := begin(t, db, nil)
	if err := sqlfence.Advance(t.Context(), tx, resource, 8); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, sqlfence.Advance(t.Context(), begin(t, db, nil), resource, 7), pglock.ErrFenced)
	wantErr(t, sqlfence.Advance(t.Context(), db, resource, 9), pglock.ErrFenceMisplaced)
}
