package idem_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Where COPY does something else than an INSERT, all is as it was.
func TestCopyOnce_GoesThroughStagingWhereCOPYIsNotAnINSERT(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, c := range map[string]struct{ key, ddl string }{
		"a statement's trigger":  {"id bigint PRIMARY KEY", "CREATE TRIGGER t AFTER INSERT ON %[1]s FOR EACH STATEMENT EXECUTE FUNCTION %[2]s()"},
		"a row's trigger":        {"id bigint PRIMARY KEY", "CREATE TRIGGER t AFTER INSERT ON %[1]s FOR EACH ROW EXECUTE FUNCTION %[2]s()"},
		"a child":                {"id bigint PRIMARY KEY", "CREATE TABLE %[2]s () INHERITS (%[1]s)"},
		"a policy":               {"id bigint PRIMARY KEY", "ALTER TABLE %[1]s ENABLE ROW LEVEL SECURITY"},
		"a rule":                 {"id bigint PRIMARY KEY", "CREATE RULE r AS ON INSERT TO %[1]s WHERE new.id < 0 DO INSTEAD NOTHING"},
		"an index that descends": {"id bigint", "CREATE UNIQUE INDEX ON %[1]s (id DESC)"},
		"a key of another type":  {"id numeric PRIMARY KEY", ""},
		"a key of a domain":      {"id bigint PRIMARY KEY", "CREATE DOMAIN %[2]s AS bigint; ALTER TABLE %[1]s ALTER id TYPE %[2]s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := idem.Target{Table: table(t, pool, c.key+", body text"), Columns: []string{"id", "body"}, Key: []string{"id"}}
			other := table(t, pool, "id int")
			exec(t, pool, "DROP TABLE "+other.Sanitize())
			if strings.Contains(c.ddl, "TRIGGER") {
				exec(t, pool, "CREATE FUNCTION "+other.Sanitize()+"() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$")
			}
			if c.ddl != "" {
				exec(t, pool, fmt.Sprintf(c.ddl, target.Table.Sanitize(), other.Sanitize()))
			}
			got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 200, 100)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
			if n := writers(t, pool, target); n != 1 {
				t.Errorf("%d chunks went straight", n)
			}
		})
	}
}

// COPY would fill an identity that an INSERT may not name, and has another error for a
// generated column.
func TestCopyOnce_RefusesAColumnThatAnINSERTMayNotName(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, column := range map[string]string{
		"identity":  "body bigint GENERATED ALWAYS AS IDENTITY",
		"generated": "body bigint GENERATED ALWAYS AS (id * 2) STORED",
	} {
		target := idem.Target{Table: table(t, pool, "id bigint PRIMARY KEY, "+column), Columns: []string{"id", "body"}, Key: []string{"id"}}
		_, err := load(t.Context(), pool, target, [][]any{{int64(1), int64(2)}})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "428C9" {
			t.Errorf("%s: error is %v, want 428C9, generated_always", name, err)
		}
	}
}

// A role that may not read the whole table can't ask which rows are its own.
func TestCopyOnce_NeedsNoMoreThanTheColumns(t *testing.T) {
	t.Parallel()
	pgtest.NotAsRole(t, "it makes one, with less than that")
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	role := pgx.Identifier{"r" + target.Table[1][len(target.Table[1])-10:]}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role+"; GRANT SELECT (id), INSERT (id, body) ON "+target.Table.Sanitize()+" TO "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
		t.Fatal(err)
	}
	got, err := idem.CopyInChunks(t.Context(), tx, target, pgx.CopyFromRows(falling()), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 54, Inserted: 52, Duplicate: 2})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// COPY alone doesn't ask a domain whether a column may be left out.
func TestCopyOnce_LeavesOutNoColumnThatItsDomainWants(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	domain := pgx.Identifier{pgtest.Name(t)}.Sanitize()
	exec(t, pool, "CREATE DOMAIN "+domain+" AS int NOT NULL")
	for what, want := range map[string]string{"": "23502", " DEFAULT 7": ""} {
		target := idem.Target{Table: table(t, pool, "id int PRIMARY KEY, v "+domain+what), Columns: []string{"id"}, Key: []string{"id"}}
		_, err := load(t.Context(), pool, target, [][]any{{1}, {2}})
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		if (want == "") != (err == nil) || pgErr != nil && pgErr.Code != want {
			t.Errorf("a column%s: error is %v, want %q", what, err, want)
		}
	}
}

// A temporary table of CopyOnce's own is first on the search path.
func TestCopyOnce_MeansTheTableThatItsNameMeant(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{Table: pgx.Identifier{"gatepost_copy"}, Columns: []string{"id"}, Key: []string{"id"}}
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), "CREATE TABLE public.gatepost_copy (id text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []idem.Counts{{Rows: 2, Inserted: 2}, {Rows: 2, Existed: 2}} {
		got, err := idem.CopyOnce(t.Context(), tx, target, pgx.CopyFromRows([][]any{{"a"}, {"b"}}))
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
}

// Which keys are equal is for the unique index to say, not for the column.
func TestCopyOnce_TellsKeysApartAsTheirIndexDoes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if !value[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i')") {
		t.Skip("this server is built without ICU")
	}
	nocase := pgx.Identifier{"public", pgtest.Name(t)}.Sanitize()
	exec(t, pool, "CREATE COLLATION "+nocase+" (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	rows := [][]any{{"b", "1"}, {"a", "2"}, {"A", "3"}, {"c", "4"}}
	for _, c := range []struct {
		column, index string
		first, again  idem.Counts
	}{
		{`"C"`, nocase, idem.Counts{Rows: 4, Inserted: 3, Duplicate: 1}, idem.Counts{Rows: 4, Existed: 3, Duplicate: 1}},
		{nocase, nocase, idem.Counts{Rows: 4, Inserted: 3, Duplicate: 1}, idem.Counts{Rows: 4, Existed: 3, Duplicate: 1}},
		{nocase, `"C"`, idem.Counts{Rows: 4, Inserted: 4}, idem.Counts{Rows: 4, Existed: 4}},
	} {
		target := idem.Target{
			Table:   table(t, pool, "id text COLLATE "+c.column+", body text"),
			Columns: []string{"id", "body"}, Key: []string{"id"}, Compare: []string{"body"},
		}
		exec(t, pool, "CREATE UNIQUE INDEX ON "+target.Table.Sanitize()+" (id COLLATE "+c.index+")")
		for _, want := range []idem.Counts{c.first, c.again} {
			got, err := load(t.Context(), pool, target, rows)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, want)
		}
	}
}

// A key WITHOUT OVERLAPS is one whose values are not equal, but overlap.
func TestCopyOnce_RefusesAKeyThatOverlaps(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if value[int](t, pool, "SELECT current_setting('server_version_num')::int") < 180000 {
		t.Skip("PostgreSQL has those from 18 on")
	}
	target := idem.Target{
		Table:   table(t, pool, "id int4range, span int4range, UNIQUE (id, span WITHOUT OVERLAPS)"),
		Columns: []string{"id", "span"}, Key: []string{"id", "span"},
	}
	_, err := load(t.Context(), pool, target, [][]any{{"[1,2)", "[1,9)"}})
	wantErr(t, err, idem.ErrNoUniqueKey)
}
