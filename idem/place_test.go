package idem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Whatever came of it, the caller's transaction is where it was, and not in a savepoint:
// a fence of pglock's would be refused there.
func TestDoTx_AndInboxLeaveNoSavepoint(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, done, busy := store(t, pool, idem.Config{}), newKey(t), newKey(t)
	if _, err := s.Do(t.Context(), done, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DoTx(t.Context(), begin(t, pool, pgx.TxOptions{}), busy, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	doTx := func(key idem.Key, f idem.Fingerprint, end error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := s.DoTx(t.Context(), tx, key, f, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return created, end })
			return err
		}
	}
	inbox := func(id string, end error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			return idem.Inbox(t.Context(), tx, t.Name(), id, fp, func(pgx.Tx) error { return end })
		}
	}
	for what, call := range map[string]func(pgx.Tx) error{
		"DoTx":                     doTx(newKey(t), fp, nil),
		"DoTx, Final":              doTx(newKey(t), fp, idem.Final(created)),
		"DoTx, the function fails": doTx(newKey(t), fp, errBusiness),
		"DoTx, replay":             doTx(done, fp, nil),
		"DoTx, mismatch":           doTx(done, other, nil),
		"DoTx, in progress":        doTx(busy, fp, nil),
		"Inbox":                    inbox("1", nil),
		"Inbox, seen": func(tx pgx.Tx) error {
			return errors.Join(inbox("2", nil)(tx), inbox("2", nil)(tx))
		},
		"Inbox, the function fails": inbox("3", errBusiness),
	} {
		for _, savepoint := range []string{"gatepost_key", "gatepost_effect"} {
			tx := begin(t, pool, pgx.TxOptions{})
			_ = call(tx) // the other tests say what it is
			_, err := tx.Exec(t.Context(), "RELEASE SAVEPOINT "+savepoint)
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "3B001" {
				t.Errorf("%s: the savepoint %s is there: %v", what, savepoint, err)
			}
			_ = tx.Rollback(t.Context())
		}
	}
}

// A chunk with a row that refers to a later one doesn't go straight, and its savepoint is
// undone. A backend locks the id of each savepoint that it has written in and not ended,
// which is how a fence tells where it is.
func TestCopyOnce_LeavesNoSavepoint(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, rows := range map[string][][]any{
		"all chunks went straight": {{1, nil}, {2, 1}, {3, 2}},
		"not the first":            {{1, 2}, {2, nil}, {3, 2}},
		"not a later one":          {{1, nil}, {2, 3}, {3, nil}},
	} {
		target := idem.Target{Table: table(t, pool, "id int PRIMARY KEY, next int"), Columns: []string{"id", "next"}, Key: []string{"id"}}
		exec(t, pool, "ALTER TABLE "+target.Table.Sanitize()+" ADD FOREIGN KEY (next) REFERENCES "+target.Table.Sanitize())
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := idem.CopyInChunks(t.Context(), tx, target, pgx.CopyFromRows(rows), 1, 100); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO "+target.Table.Sanitize()+" VALUES (4, NULL)"); err != nil {
			t.Fatal(err)
		}
		var locked int
		err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
			WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock'`).Scan(&locked)
		if err != nil || locked != 1 {
			t.Errorf("%s: %d ids are locked, want that of the transaction alone (%v)", what, locked, err)
		}
		_ = tx.Rollback(t.Context())
	}
}
