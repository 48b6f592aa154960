package idem_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The staging table has one name, and a connection may remember what columns a
// statement on it had.
func TestCopyOnce_ReadsEachTablesOwnTypes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.URL(t)+"&pool_max_conns=1")
	for _, c := range []struct {
		kind  string
		value any
		want  string
	}{
		{"text", "1234", "1234"},
		{"int", "1234", "1234"},
		{"bigint", int64(5), "5"},
		{"float8", 5.5, "5.5"},
		{"float8", int64(5), "5"},
		{"money", "12345.67", "$12,345.67"},
		{"timestamptz", "2024-01-15T10:00:00Z", "2024-01-15 10:00:00+00"},
		{"timestamptz", time.Date(2024, 1, 15, 10, 0, 0, 0, time.UTC), "2024-01-15 10:00:00+00"},
		{"date", "15 Jan 2024", "2024-01-15"},
		{"integer", " 1", "1"},
		{"numeric", "1e3", "1000"},
		{"uuid", "{6f9619ff-8b86-4011-b42d-00c04fc964ff}", "6f9619ff-8b86-4011-b42d-00c04fc964ff"},
		{"bytea", []byte{0, 1, '\\', 255}, `\x00015cff`},
		{"text[]", []string{"a", `b"\`}, `{a,"b\"\\"}`},
		{"jsonb", map[string]int{"a": 1}, `{"a": 1}`},
		{"boolean", true, "true"},
		{"text", "tab\t nl\n cr\r back\\ \\N é", "tab\t nl\n cr\r back\\ \\N é"},
		{"text", "", ""},
		{"pg_lsn", "0/16B3748", "0/16B3748"},
	} {
		target := idem.Target{Table: table(t, pool, "id int PRIMARY KEY, v "+c.kind), Columns: []string{"id", "v"}, Key: []string{"id"}}
		if _, err := load(t.Context(), pool, target, [][]any{{1, c.value}, {2, nil}}); err != nil {
			t.Errorf("%s %v: %v", c.kind, c.value, err)
			continue
		}
		exec(t, pool, "SET TIME ZONE 'UTC'")
		got := value[string](t, pool, "SELECT v::text FROM "+target.Table.Sanitize()+" WHERE id = 1")
		if got != c.want {
			t.Errorf("%s %v is stored as %q, want %q", c.kind, c.value, got, c.want)
		}
		if !value[bool](t, pool, "SELECT v IS NULL FROM "+target.Table.Sanitize()+" WHERE id = 2") {
			t.Errorf("%s: nil is not NULL", c.kind)
		}
	}
}

func TestCopyOnce_SaysWhichRowWasRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{Table: table(t, pool, "id int PRIMARY KEY, v int"), Columns: []string{"id", "v"}, Key: []string{"id"}}
	_, err := load(t.Context(), pool, target, [][]any{{1, "1"}, {2, "four"}})
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "22P02" || !strings.Contains(pgErr.Where, "line 2, column v") {
		t.Errorf("error is %v, want 22P02 in line 2, column v", err)
	}
	_, err = load(t.Context(), pool, target, [][]any{{1, "1"}, {2, "a\x00b"}})
	if err == nil || !strings.Contains(err.Error(), "row 2, value 2: it has a NUL") {
		t.Errorf("error is %v, want the NUL in row 2", err)
	}
	_, err = load(t.Context(), pool, target, [][]any{{1}})
	if err == nil || !strings.Contains(err.Error(), "1 values for 2 columns") {
		t.Errorf("error is %v, want the missing value", err)
	}
}

func TestCopyOnce_IsUTF8WhateverTheSessionSays(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.URL(t)+"&client_encoding=LATIN1")
	if pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		t.Skip("pgx itself refuses the simple protocol in other encodings than UTF8")
	}
	target := idem.Target{Table: table(t, pool, "id int PRIMARY KEY, v text"), Columns: []string{"id", "v"}, Key: []string{"id"}}
	if _, err := load(t.Context(), pool, target, [][]any{{1, "é"}}); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, "SELECT ascii(v) FROM "+target.Table.Sanitize()); n != 0xe9 {
		t.Errorf("é is stored as U+%04X", n)
	}
}

// hook makes a row trigger with that body on the table.
func hook(t *testing.T, target idem.Target, body string) string {
	t.Helper()
	fn := pgx.Identifier{"public", "hook_" + target.Table[1][len(target.Table[1])-10:]}.Sanitize()
	return "CREATE FUNCTION " + fn + "() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN " + body + " END$$;" +
		" CREATE TRIGGER hook BEFORE INSERT ON " + target.Table.Sanitize() + " FOR EACH ROW EXECUTE FUNCTION " + fn + "()"
}

func TestCopyOnce_NeverSaysThereOfWhatATriggerLeftOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	exec(t, pool, hook(t, target, "IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW;"))
	_, err := load(t.Context(), pool, target, lines(1, 3, "body"))
	wantErr(t, err, idem.ErrNotStored)
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestCopyOnce_ATriggersChangeIsNotAChangedRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	target.Compare = []string{"body"}
	exec(t, pool, hook(t, target, "NEW.body = upper(NEW.body); RETURN NEW;"))
	got, err := load(t.Context(), pool, target, lines(1, 3, "body"))
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 3, Inserted: 3})
	got, err = load(t.Context(), pool, target, lines(1, 3, "body"))
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 3, Changed: 3, FirstChanged: 1})
}
