package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestCopyOnce_AnErrorUndoesWhatWentStraight(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	gone := errors.New("the source is gone")
	broken := func(rows [][]any, at int) pgx.CopyFromSource {
		next := 0
		return pgx.CopyFromFunc(func() ([]any, error) {
			if next++; next == at {
				return nil, gone
			}
			return rows[next-1], nil
		})
	}
	null := append(lines(1, 90, "body"), []any{nil, "no key"})
	value := append(lines(1, 90, "body"), []any{"ninety-one", "no integer"})
	for name, c := range map[string]struct {
		rows pgx.CopyFromSource
		want func(error) bool
	}{
		"of the source": {broken(lines(1, 100, "body"), 91), func(err error) bool { return errors.Is(err, gone) }},
		"of a key": {pgx.CopyFromRows(null), func(err error) bool {
			return errors.Is(err, idem.ErrInvalidKey) && strings.Contains(err.Error(), "row 91")
		}},
		"of a value":       {pgx.CopyFromRows(value), refusedIn("line 91, column id")},
		"of the row count": {pgx.CopyFromRows(append(lines(1, 90, "body"), []any{int64(91)})), func(err error) bool { return strings.Contains(err.Error(), "row 91 has 1 values") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := keyed(t, pool)
			tx := begin(t, pool, pgx.TxOptions{})
			if _, err := idem.CopyInChunks(t.Context(), tx, target, c.rows, 200, 100); !c.want(err) {
				t.Fatalf("error is %v", err)
			}
			_ = tx.Commit(t.Context()) // by somebody who didn't read that it is to be rolled back
			wantRows(t, pool, target, 0)
		})
	}
}

func TestCopyOnce_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows, next := lines(1, 100, "body"), 0
	_, err := loadInChunks(ctx, pool, target, pgx.CopyFromFunc(func() ([]any, error) {
		if next++; next == 50 {
			cancel() // while a chunk is copied
		}
		return rows[next-1], nil
	}), 100, 100)
	wantErr(t, err, context.Canceled)
	wantRows(t, pool, target, 0)
}

// refusedIn says whether an error is the database's, of a row at that place.
func refusedIn(place string) func(error) bool {
	return func(err error) bool {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		return ok && strings.Contains(pgErr.Where, place)
	}
}

// Wherever a row goes, an error says which it is in the input, and in which table.
func TestCopyOnce_SaysWhichRowOfTheInputWasRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rows := func(bad ...any) pgx.CopyFromSource {
		return pgx.CopyFromRows(append(append(lines(1, 60, "1"), bad), lines(62, 80, "1")...))
	}
	for name, c := range map[string]struct {
		bad      []any
		existing string
		place    string
	}{
		"in a chunk":       {[]any{int64(61), "x\x01"}, "1000", "line 61"},
		"of the type":      {[]any{"61", "1 2", "y"}, "1000", "line 61, column note"},
		"in staging":       {[]any{"61", "1 2", "y"}, "1", "line 61, column note"},
		"in staging later": {[]any{"61", "1 2", "y"}, "35", "line 61, column note"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := idem.Target{
				Table:   table(t, pool, "id bigint PRIMARY KEY, note text CHECK (note !~ '\x01')"),
				Columns: []string{"id", "note"}, Key: []string{"id"},
			}
			if len(c.bad) == 3 {
				exec(t, pool, "ALTER TABLE "+target.Table.Sanitize()+" ALTER note TYPE varchar(4) USING note")
				c.bad = []any{c.bad[0], "too long"}
			}
			exec(t, pool, "INSERT INTO "+target.Table.Sanitize()+" VALUES ("+c.existing+", 'it')")
			_, err := loadInChunks(t.Context(), pool, target, rows(c.bad...), 100, 100)
			if !refusedIn("COPY " + target.Table[1] + ", " + c.place)(err) {
				pgErr, _ := errors.AsType[*pgconn.PgError](err)
				t.Errorf("error is %v, of %+v; want %s of the table", err, pgErr, c.place)
			}
			if !strings.Contains(err.Error(), ": row 61: ERROR") {
				t.Errorf("error is %q, which doesn't say the row", err)
			}
		})
	}
}

func TestCopyOnce_AnotherConstraintSpeaksAsItDoes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, "id bigint PRIMARY KEY, body text UNIQUE"),
		Columns: []string{"id", "body"}, Key: []string{"id"},
	}
	rows := append(lines(1, 90, "body"), []any{int64(91), "body 1"})
	_, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(rows), 200, 100)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" || !strings.HasSuffix(pgErr.ConstraintName, "_body_key") {
		t.Fatalf("error is %v, want 23505 of the other constraint", err)
	}
	wantRows(t, pool, target, 0)
}

// The servers' own words: in two languages the line comes before its name.
func TestCopyOnce_KnowsThePlaceInAnyLanguage(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`COPY gatepost_copy, line 2, column v: "x"`:                         `COPY orders, line 1002, column v: "x"`,
		"PL/pgSQL function f() line 3 at RAISE\nCOPY gatepost_copy, line 2": "PL/pgSQL function f() line 3 at RAISE\nCOPY orders, line 1002",
		`COPY gatepost_copy, Zeile 2, Spalte v: »x«`:                        `COPY orders, Zeile 1002, Spalte v: »x«`,
		`gatepost_copyのCOPY、行 2、列 v: "x"`:                                   `COPY orders, 行 1002、列 v: "x"`,
		`gatepost_copy 복사, 2번째 줄, v 열: "x"`:                                 `COPY orders, 1002번째 줄, v 열: "x"`,
		`SQL statement "SELECT 1"`:                                          `SQL statement "SELECT 1"`,
	} {
		pgErr, _ := errors.AsType[*pgconn.PgError](idem.Placed(&pgconn.PgError{Where: said}, pgx.Identifier{"pg_temp", "gatepost_copy"}, pgx.Identifier{"public", "orders"}, 1000))
		if pgErr.Where != want {
			t.Errorf("%q is moved to %q, want %q", said, pgErr.Where, want)
		}
	}
}
