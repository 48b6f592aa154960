package compat_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/compat/notesdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/gatepost/gatepost/pglock/sqlfence"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
)

// asleep is a client whose heartbeats don't come during a test.
var asleep = pglock.Config{TTL: 2 * time.Minute, PollInterval: 50 * time.Millisecond}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// add is a write of the application, in its transaction.
type add func(ctx context.Context, db *sql.DB, tx *sql.Tx, text string) error

var adds = map[string]add{
	"lib-pq": func(ctx context.Context, _ *sql.DB, tx *sql.Tx, text string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO notes (text) VALUES ($1)", text)
		return err
	},
	"sqlc": func(ctx context.Context, db *sql.DB, tx *sql.Tx, text string) error {
		return notesdb.New(db).WithTx(tx).NoteAdd(ctx, text)
	},
}

// eachWay runs a test at each isolation level with each way of writing.
func eachWay(t *testing.T, test func(t *testing.T, opts *sql.TxOptions, add add)) {
	t.Helper()
	for way, add := range adds {
		for _, level := range levels {
			t.Run(way+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				test(t, &sql.TxOptions{Isolation: level}, add)
			})
		}
	}
}

// setup is a database of the test's own with the application's table, through
// lib/pq and through pgx.
func setup(t *testing.T) (*sql.DB, *pgxpool.Pool) {
	t.Helper()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, string(schema))
	return open(t, url), pool
}

// open connects with lib/pq.
func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// begin is a transaction that the end of the test rolls back.
func begin(t *testing.T, db *sql.DB, opts *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// fenced is a write in a transaction of its own that begins with the fence.
func fenced(t *testing.T, db *sql.DB, opts *sql.TxOptions, seq pglock.Sequencer, add add, text string) error {
	t.Helper()
	tx := begin(t, db, opts)
	if err := sqlfence.Fence(t.Context(), tx, seq); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := add(t.Context(), db, tx, text); err != nil {
		return err
	}
	return tx.Commit()
}

func wantNotes(t *testing.T, db *sql.DB, want int64) {
	t.Helper()
	if got, err := notesdb.New(db).NoteCount(t.Context()); err != nil || got != want {
		t.Errorf("got %d notes, %v; want %d", got, err, want)
	}
}

func TestFence_PassesWhileHeldAndRefusesAfter(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, opts *sql.TxOptions, add add) {
		db, pool := setup(t)
		c, name := client(t, pool, asleep), pgtest.Name(t)

		first := acquire(t, c, name)
		for range 2 {
			if err := fenced(t, db, opts, first.Sequencer(), add, "first"); err != nil {
				t.Fatalf("while held: %v", err)
			}
		}
		release(t, first)
		err := fenced(t, db, opts, first.Sequencer(), add, "released")
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrReleased)

		second := acquire(t, c, name)
		expire(t, pool, name)
		wantErr(t, fenced(t, db, opts, second.Sequencer(), add, "expired"), pglock.ErrExpired)

		third := acquire(t, client(t, pool, asleep), name)
		err = fenced(t, db, opts, second.Sequencer(), add, "superseded")
		wantErr(t, err, pglock.ErrSuperseded)
		if refused, ok := errors.AsType[*pglock.FencedError](err); !ok || refused.Current != third.Token() {
			t.Errorf("got %#v, want the token %d as the current one", err, third.Token())
		}
		wantNotes(t, db, 2)
	})
}

func TestFence_HoldsATakeoverOffUntilTheCommit(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, opts *sql.TxOptions, add add) {
		db, pool := setup(t)
		stale, next, name := client(t, pool, asleep), client(t, pool, asleep), pgtest.Name(t)
		lease := acquire(t, stale, name)
		tx := begin(t, db, opts)
		if err := sqlfence.Fence(t.Context(), tx, lease.Sequencer()); err != nil {
			t.Fatal(err)
		}
		expire(t, pool, name)
		waiting := granted(t, next, name)
		if err := add(t.Context(), db, tx, "before the takeover"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := next.TryAcquire(t.Context(), name, nil)
			if held, ok := errors.AsType[*pglock.HeldError](err); !ok || !held.Fenced {
				t.Fatalf("takeover under an open fence: %v; want a *HeldError with Fenced", err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		taken := within(t, 10*time.Second, waiting)
		wantNotes(t, db, 1)

		wantErr(t, fenced(t, db, opts, lease.Sequencer(), add, "after the takeover"), pglock.ErrSuperseded)
		wantNotes(t, db, 1)
		if err := fenced(t, db, opts, taken.Sequencer(), add, "the next holder"); err != nil {
			t.Errorf("the next holder's write: %v", err)
		}
	})
}

// The refusal is a serialization failure there, which pglock knows by SQLSTATE.
func TestFence_RefusesASupersededTokenInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	db, pool := setup(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		c, name := client(t, pool, asleep), pgtest.Name(t)
		lease := acquire(t, c, name)
		tx := begin(t, db, &sql.TxOptions{Isolation: level})
		if _, err := notesdb.New(db).WithTx(tx).NoteCount(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		acquire(t, c, name)
		err := sqlfence.Fence(t.Context(), tx, lease.Sequencer())
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrSuperseded)
	}
}

func TestFence_RefusesWhereItWouldNotHold(t *testing.T) {
	t.Parallel()
	db, pool := setup(t)
	seq := acquire(t, client(t, pool, asleep), pgtest.Name(t)).Sequencer()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	inSavepoint := begin(t, db, nil)
	if _, err := inSavepoint.ExecContext(t.Context(), "SAVEPOINT s"); err != nil {
		t.Fatal(err)
	}
	for what, tx := range map[string]sqlfence.Tx{
		"a *sql.DB":                 db,
		"a *sql.Conn":               conn,
		"a READ ONLY transaction":   begin(t, db, &sql.TxOptions{ReadOnly: true}),
		"a transaction's savepoint": inSavepoint,
	} {
		if err := sqlfence.Fence(t.Context(), tx, seq); !errors.Is(err, pglock.ErrFenceMisplaced) {
			t.Errorf("Fence in %s: got %v, want %v", what, err, pglock.ErrFenceMisplaced)
		}
	}
}

func TestFence_NamesAMissingSchema(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	seq := acquire(t, client(t, pool, asleep), pgtest.Name(t)).Sequencer()
	db := open(t, pgtest.EmptyDatabase(t))
	err := sqlfence.Fence(t.Context(), begin(t, db, nil), seq)
	wantErr(t, err, pglock.ErrNotMigrated)
	if _, ok := errors.AsType[*pq.Error](err); !ok {
		t.Errorf("got %v, want the driver's error inside", err)
	}
}

func TestAdvance_RefusesALowerToken(t *testing.T) {
	t.Parallel()
	db, _ := setup(t)
	for _, level := range levels {
		resource, opts := pgtest.Name(t), &sql.TxOptions{Isolation: level}
		old := begin(t, db, opts)
		if _, err := notesdb.New(db).WithTx(old).NoteCount(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, token := range []int64{7, 8, 8} {
			if err := advance(t, begin(t, db, opts), resource, token); err != nil {
				t.Fatalf("%s: Advance to %d: %v", level, token, err)
			}
		}
		wantErr(t, advance(t, begin(t, db, opts), resource, 7), pglock.ErrFenced)
		if advance(t, old, resource, 7) == nil {
			t.Errorf("%s: a lower token passed in an old snapshot", level)
		}
		wantErr(t, sqlfence.Advance(t.Context(), db, resource, 9), pglock.ErrFenceMisplaced)
		readOnly := begin(t, db, &sql.TxOptions{ReadOnly: true})
		wantErr(t, advance(t, readOnly, resource, 9), pglock.ErrFenceMisplaced)
	}
}

// advance is Advance and the end of the transaction: a refused one still has a lock.
func advance(t *testing.T, tx *sql.Tx, resource string, token int64) error {
	t.Helper()
	if err := sqlfence.Advance(t.Context(), tx, resource, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
