package migrations_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
)

// Whose rights a function has, and that nothing of its caller's takes the place of what it
// names: neither a schema in front nor a temporary table, which comes first where
// pg_temp is not named.
func TestFunctions_ArePinnedAndHaveTheRightsTheyNeed(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	// The finisher runs in each effect, and names its operators instead: see 00005.
	if loose := value[string](t, pool, `SELECT coalesce(string_agg(p.oid::regprocedure::text, ', ' ORDER BY 1), '') FROM pg_proc AS p
		WHERE p.pronamespace = 'gatepost'::regnamespace AND p.proname <> 'idempotency_keys_finished'
			AND p.proconfig IS DISTINCT FROM '{"search_path=pg_catalog, pg_temp"}'`); loose != "" {
		t.Errorf("search_path is not pinned in %s", loose)
	}
	const want = "fence(text) fence(text,integer,bigint,uuid) guard_row() guard_statement() try_fence(text,integer,bigint,uuid)"
	if got := value[string](t, pool, `SELECT string_agg(replace(p.oid::regprocedure::text, 'gatepost.', ''), ' ' ORDER BY p.oid::regprocedure::text COLLATE "C") FROM pg_proc AS p
		WHERE p.pronamespace = 'gatepost'::regnamespace AND p.prosecdef`); got != want {
		t.Errorf("SECURITY DEFINER are\n%s, want\n%s", got, want)
	}
}

// A session's schema in front of the system's doesn't decide whether a claim is finished.
func TestFinisher_NamesItsOperatorsWithTheirSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	body := value[string](t, pool, `SELECT prosrc FROM pg_proc WHERE oid = 'gatepost.idempotency_keys_finished()'::regprocedure`)
	for line := range strings.Lines(body) {
		code, _, _ := strings.Cut(line, "--")
		code = strings.ReplaceAll(code, "OPERATOR(pg_catalog.=)", "")
		if !strings.Contains(code, "ERRCODE") && !strings.Contains(code, "MESSAGE") && !strings.Contains(code, "HINT") && strings.Contains(code, "=") {
			t.Errorf("%q has an operator of any schema", line)
		}
	}
}

// Names and keys are compared byte by byte: a collation of the system's that an update
// changes would break the indexes that make a name one row, and one that takes names for
// equal would make two of them one.
func TestColumns_OfNamesAndKeysCompareBytes(t *testing.T) {
	t.Parallel()
	if others := value[string](t, pgtest.Pool(t), `SELECT coalesce(string_agg(DISTINCT c.relname || '.' || a.attname, ', '), '')
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indrelid AND c.relnamespace = 'gatepost'::regnamespace
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
		WHERE a.attcollation <> 0 AND a.attcollation <> '"C"'::regcollation
			AND c.relname <> 'imports' -- names of tables, beside the SHA-256`); others != "" {
		t.Errorf("%s are compared by the database's collation", others)
	}
}

// now() is when the transaction began: it is in no default and in no function.
func TestSchema_NeverReadsTheTransactionsClock(t *testing.T) {
	t.Parallel()
	if frozen := value[string](t, pgtest.Pool(t), `SELECT coalesce(string_agg(made.name, ', '), '') FROM (
			SELECT p.proname::text AS name, p.prosrc AS text FROM pg_proc AS p WHERE p.pronamespace = 'gatepost'::regnamespace
			UNION ALL
			SELECT c.relname || '.' || a.attname, pg_get_expr(d.adbin, d.adrelid)
			FROM pg_attrdef AS d
			JOIN pg_class AS c ON c.oid = d.adrelid AND c.relnamespace = 'gatepost'::regnamespace AND c.relname <> 'schema_migrations'
			JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
		) AS made
		WHERE made.text ~* '\m(now *\(|current_timestamp|localtimestamp|transaction_timestamp|statement_timestamp)'`); frozen != "" {
		t.Errorf("%s reads when the transaction began", frozen)
	}
}

// With the functions the guards go, and the application's tables are as they were.
func TestDown_TakesTheGuardsAlong(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	for _, sql := range []string{
		"CREATE TABLE g (lease text)", "SELECT gatepost.guard_table('g', 'a')",
		"CREATE TABLE p (lease text) PARTITION BY LIST (lease)", "CREATE TABLE p1 PARTITION OF p DEFAULT", "SELECT gatepost.guard_table('p', lease_column => 'lease')",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Down(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"g", "p", "p1"} {
		if _, err := pool.Exec(t.Context(), "INSERT INTO "+table+" VALUES ('x')"); err != nil {
			t.Errorf("%s is not as it was: %v", table, err)
		}
	}
}
