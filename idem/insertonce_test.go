package idem_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

type order struct {
	ID     int64
	Number string
}

// orders is a table whose numbers are unique.
func orders(t *testing.T, pool *pgxpool.Pool) pgx.Identifier {
	t.Helper()
	return table(t, pool, "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number text NOT NULL UNIQUE, note text UNIQUE")
}

func insertOrder(table pgx.Identifier, number any) idem.Insert {
	return idem.Insert{
		Table: table, Columns: []string{"number"}, Values: []any{number},
		Key: []string{"number"}, Returning: []string{"id", "number"},
	}
}

func TestInsertOnce_OneOfManyInsertsAndAllGetItsRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ins := insertOrder(orders(t, pool), "A-1")
	var inserted atomic.Int32
	var wg sync.WaitGroup
	ids := make([]int64, 64)
	for i := range ids {
		wg.Go(func() {
			row, outcome, err := idem.InsertOnce(t.Context(), pool, ins, pgx.RowToStructByPos[order])
			if err != nil {
				t.Error(err)
			}
			if outcome == idem.Inserted {
				inserted.Add(1)
			}
			ids[i] = row.ID
		})
	}
	wg.Wait()
	if inserted.Load() != 1 {
		t.Errorf("%d callers inserted, want 1", inserted.Load())
	}
	for _, id := range ids {
		if id != ids[0] || id == 0 {
			t.Fatalf("callers got rows %v, want one and the same", ids)
		}
	}
}

// On a pool the caller has no transaction to repeat, whatever the sessions' isolation is.
func TestInsertOnce_OnAPoolFindsTheWinnerItWaitedFor(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := atLevel(t, level)
			ins := insertOrder(orders(t, pool), "A-1")
			winner := begin(t, pool, pgx.TxOptions{})
			if _, _, err := idem.InsertOnce(t.Context(), winner, ins, pgx.RowToStructByPos[order]); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				row, outcome, err := idem.InsertOnce(t.Context(), pool, ins, pgx.RowToStructByPos[order])
				if err == nil && (outcome != idem.Existed || row.Number != "A-1") {
					err = fmt.Errorf("%+v, %s", row, outcome)
				}
				done <- err
			}()
			waitForLockWait(t, pool, ins.Table.Sanitize())
			if err := winner.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInsertOnce_WaitsForAnUncommittedRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ins := insertOrder(orders(t, pool), "A-1")
	for _, commit := range []bool{false, true} {
		tx := begin(t, pool, pgx.TxOptions{})
		if _, outcome, err := idem.InsertOnce(t.Context(), tx, ins, pgx.RowToStructByPos[order]); err != nil || outcome != idem.Inserted {
			t.Fatalf("%s, %v", outcome, err)
		}
		second := begin(t, pool, pgx.TxOptions{})
		got := make(chan idem.Outcome, 1)
		go func() {
			_, outcome, err := idem.InsertOnce(t.Context(), second, ins, pgx.RowToStructByPos[order])
			if err != nil {
				t.Error(err)
			}
			got <- outcome
		}()
		waitForLockWait(t, pool, ins.Table.Sanitize())
		want := idem.Inserted
		if commit {
			want = idem.Existed
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if outcome := <-got; outcome != want {
			t.Errorf("after commit=%t it is %s, want %s", commit, outcome, want)
		}
		if err := second.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInsertOnce_LeavesAnExistingRowAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ins := insertOrder(orders(t, pool), "A-1")
	ins.Columns, ins.Values = append(ins.Columns, "note"), append(ins.Values, "first")
	ins.Returning = nil
	scan := pgx.RowToStructByPos[struct{ Number, Note string }]
	if _, _, err := idem.InsertOnce(t.Context(), pool, ins, scan); err != nil {
		t.Fatal(err)
	}
	before := value[string](t, pool, "SELECT xmin::text FROM "+ins.Table.Sanitize())
	ins.Values[1] = "second"
	row, outcome, err := idem.InsertOnce(t.Context(), pool, ins, scan)
	if err != nil || outcome != idem.Existed || row.Note != "first" {
		t.Errorf("%+v, %s, %v; want the first row as existed", row, outcome, err)
	}
	if after := value[string](t, pool, "SELECT xmin::text FROM "+ins.Table.Sanitize()); after != before {
		t.Error("the row was written again")
	}
}

func TestInsertOnce_RefusesWhatCouldRunTwice(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := orders(t, pool)

	_, _, err := idem.InsertOnce(t.Context(), pool, insertOrder(table, nil), pgx.RowToStructByPos[order])
	wantErr(t, err, idem.ErrInvalidKey)

	unkeyed := idem.Insert{Table: table, Columns: []string{"number", "note"}, Values: []any{"a", "b"}, Key: []string{"number", "note"}}
	_, _, err = idem.InsertOnce(t.Context(), pool, unkeyed, pgx.RowToStructByPos[order])
	wantErr(t, err, idem.ErrNoUniqueKey)
	if !strings.Contains(err.Error(), `("number", "note")`) {
		t.Errorf("error %q doesn't say which index is missing", err)
	}
}

func TestInsertOnce_ReportsAnotherConstraint(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := orders(t, pool)
	exec(t, pool, "INSERT INTO "+table.Sanitize()+" (number, note) VALUES ('A-1', 'taken')")
	_, _, err := idem.InsertOnce(t.Context(), pool, idem.Insert{
		Table: table, Columns: []string{"number", "note"}, Values: []any{"A-2", "taken"}, Key: []string{"number"},
	}, pgx.RowToStructByPos[order])
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" || !strings.Contains(pgErr.ConstraintName, "note") {
		t.Errorf("error is %v, want 23505 of the note's constraint", err)
	}
}

func TestInsertOnce_AsksForARetryWhereTheSnapshotIsOld(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ins := insertOrder(orders(t, pool), "A-1")
	tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM "+ins.Table.Sanitize()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := idem.InsertOnce(t.Context(), pool, ins, pgx.RowToStructByPos[order]); err != nil {
		t.Fatal(err)
	}
	_, _, err := idem.InsertOnce(t.Context(), tx, ins, pgx.RowToStructByPos[order])
	wantErr(t, err, idem.ErrRetryTx)
}

// A key that is NULL is equal to no other, and would be inserted each time, however the
// caller writes it.
// Each column of the key counts: another tenant's row of the same number is another row.
func TestInsertOnce_FindsTheRowOfTheWholeKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	id := table(t, pool, "tenant text, number int, note text, UNIQUE (tenant, number)")
	exec(t, pool, "INSERT INTO "+id.Sanitize()+" VALUES ('a', 1, 'a1'), ('b', 2, 'b2'), ('a', 2, 'a2'), ('b', 1, 'b1')")
	for _, tenant := range []string{"a", "b"} {
		for _, number := range []int{1, 2} {
			note, outcome, err := idem.InsertOnce(t.Context(), pool, idem.Insert{
				Table: id, Columns: []string{"tenant", "number", "note"}, Values: []any{tenant, number, "new"},
				Key: []string{"tenant", "number"}, Returning: []string{"note"},
			}, pgx.RowTo[string])
			if want := fmt.Sprint(tenant, number); err != nil || outcome != idem.Existed || note != want {
				t.Errorf("the row of %s is %s, %s, %v", want, note, outcome, err)
			}
		}
	}
}

func TestInsertOnce_RefusesEveryNull(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	id := table(t, pool, "a text, b bytea, UNIQUE (a, b)")
	var text *string
	for what, v := range map[string]any{
		"nil": nil, "a pointer": text, "pgtype": pgtype.Text{}, "database/sql": sql.NullString{}, "a pointer to one": (*sql.NullString)(nil),
	} {
		_, _, err := idem.InsertOnce(t.Context(), pool, idem.Insert{
			Table: id, Columns: []string{"a", "b"}, Values: []any{v, []byte{}}, Key: []string{"a", "b"},
		}, pgx.RowToMap)
		if !errors.Is(err, idem.ErrInvalidKey) {
			t.Errorf("%s: %v, want ErrInvalidKey", what, err)
		}
	}
	_, _, err := idem.InsertOnce(t.Context(), pool, idem.Insert{
		Table: id, Columns: []string{"a", "b"}, Values: []any{pgtype.Text{Valid: true}, []byte(nil)}, Key: []string{"a", "b"},
	}, pgx.RowToMap)
	wantErr(t, err, idem.ErrInvalidKey)
	if n := value[int](t, pool, "SELECT count(*) FROM "+id.Sanitize()); n != 0 {
		t.Errorf("%d rows", n)
	}
}
