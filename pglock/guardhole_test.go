package pglock_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// What a session puts before the system's own tables, functions and operators is not seen
// by a guard, nor by a fence.
func TestGuard_IsNotHijacked(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	l := acquire(t, asleep(t, pool), "a", nil)
	exec(t, pool, "CREATE TABLE g (lease text)")
	exec(t, pool, "CREATE TABLE p (lease text, v int) PARTITION BY LIST (v)")
	guard(t, pool, "g", byLease("a"))
	guard(t, pool, "p", byColumn("lease"))
	exec(t, pool, "CREATE TABLE p1 PARTITION OF p DEFAULT") // with the row's trigger alone
	for what, setUp := range map[string][]string{
		"temporary tables": {
			"CREATE TEMP TABLE leases AS SELECT * FROM gatepost.leases WITH NO DATA",
			"INSERT INTO pg_temp.leases (name, slot, token, nonce, expires_at) VALUES ('a', 0, 7, '" + aNonce + "', 'infinity')",
			"SET search_path = pg_temp, public",
		},
		"a schema in front": {
			"CREATE SCHEMA evil",
			"CREATE TABLE evil.leases AS SELECT * FROM pg_temp.leases",
			"CREATE FUNCTION evil.strpos(text, text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
			"CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT '-infinity'::timestamptz$$",
			"CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$SELECT E'\\n' || pg_current_xact_id() || E'/a\\n'$$",
			"CREATE FUNCTION evil.fenced(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			"CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			"CREATE FUNCTION evil.yes(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			"CREATE FUNCTION evil.pick(jsonb, text) RETURNS text LANGUAGE sql AS $$SELECT 'a'$$",
			"CREATE OPERATOR evil.->> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = evil.pick)",
			"CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes)",
			"CREATE OPERATOR evil.> (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.yes)",
			"CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_catalog.textcat)",
			"SET search_path = evil, pg_catalog, public",
		},
	} {
		conn := session(t, pool)
		if what != "temporary tables" {
			setUp = append([]string{"CREATE TEMP TABLE leases AS SELECT * FROM gatepost.leases"}, setUp...)
		}
		for _, sql := range setUp {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		for _, sql := range []string{"INSERT INTO public.g VALUES ('a')", "INSERT INTO public.p VALUES ('a', 1)", "INSERT INTO public.p1 VALUES ('a', 1)"} {
			_, err := conn.Exec(t.Context(), sql)
			wantGuard(t, what+", "+sql, err)
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			present(t, tx, seqText("7", aNonce, "a"))
			wantGuard(t, what+", presented, "+sql, run(t, tx, sql))
			_ = tx.Rollback(t.Context())
			_, err = conn.Exec(t.Context(), "SELECT gatepost.fence($1)", seqText("7", aNonce, "a"))
			if codeOf(err) != pglock.CodeFenced {
				t.Errorf("%s: gatepost.fence: %v", what, err)
			}
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t, tx, "SELECT gatepost.fence('"+l.Sequencer().String()+"')", "INSERT INTO public.g VALUES ('a')", "INSERT INTO public.p1 VALUES ('a', 1)"); err != nil {
			t.Errorf("%s: with a good fence: %v", what, err)
		}
		wantGuard(t, what+", another's row", run(t, tx, "INSERT INTO public.p1 VALUES ('b', 1)"), `lease "b"`)
		_ = tx.Rollback(t.Context())
	}
}

// What no trigger can stop. It is the owner's and the superuser's, and Guards finds what
// stays open.
func TestGuard_TheOwnerPasses(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	exec(t, pool, "CREATE TABLE g (lease text)")
	for kind, opts := range bothGuards {
		guard(t, pool, "g", opts)
		tx := begin(t, pool, pgx.TxOptions{})
		if err := run(t, tx, "SET LOCAL session_replication_role = replica", "INSERT INTO g VALUES ('x')"); err != nil {
			t.Errorf("%s: session_replication_role: %v", kind, err)
		}
		if err := tx.Rollback(t.Context()); err != nil { // or the next would wait for it
			t.Fatal(err)
		}
		exec(t, pool, "ALTER TABLE g DISABLE TRIGGER USER")
		exec(t, pool, "INSERT INTO g VALUES ('x')")
		if hole := onlyHole(t, pool); hole.Table[1] != "g" || hole.Problem != pglock.GuardDisabled {
			t.Errorf("%s: hole %+v", kind, hole)
		}
		exec(t, pool, "ALTER TABLE g ENABLE TRIGGER USER")
		_, err := pool.Exec(t.Context(), "INSERT INTO g VALUES ('x')")
		wantGuard(t, "enabled again", err)
	}
	exec(t, pool, "ALTER TABLE g ENABLE ALWAYS TRIGGER gatepost_guard") // more than needed is no hole
	if found := holes(t, pool); found != nil {
		t.Errorf("always enabled, holes %+v", found)
	}
	guard(t, pool, "g", bothGuards["column"]) // the loop ended with either
	exec(t, pool, "DROP TRIGGER gatepost_guard_update ON g")
	if hole := onlyHole(t, pool); hole.Problem != pglock.GuardRowsMissing {
		t.Errorf("hole %+v", hole)
	}
	guard(t, pool, "g", bothGuards["column"])
	if found := holes(t, pool); found != nil {
		t.Errorf("holes %+v", found)
	}
}

// The triggers alone say what is guarded: made again from their definitions, as pg_dump
// does, they guard a restored table.
func TestGuard_CanBeRestoredFromItsTriggers(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	lease := `it's \ "é` + "\n%"
	l := acquire(t, asleep(t, pool), lease, nil)
	for _, opts := range []pglock.GuardOptions{byLease(lease), byColumn("lease")} {
		exec(t, pool, "CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)")
		guard(t, pool, "g", opts)
		definitions := value[string](t, pool, "SELECT string_agg(pg_get_triggerdef(oid), ';' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'g'::regclass")
		exec(t, pool, "DROP TABLE g")
		if guards, err := pglock.Guards(t.Context(), pool); err != nil || guards != nil {
			t.Errorf("of the dropped table there is %+v, %v", guards, err)
		}
		exec(t, pool, "CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)")
		exec(t, pool, "CREATE TABLE g1 PARTITION OF g DEFAULT")
		for _, sql := range strings.Split(definitions, ";") {
			exec(t, pool, sql)
		}
		_, err := pool.Exec(t.Context(), "INSERT INTO g VALUES ($1, 1)", lease)
		wantGuard(t, "restored", err)
		if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO g VALUES ($1, 1)", lease)
			return err
		}); err != nil {
			t.Errorf("restored, fenced: %v", err)
		}
		guards, err := pglock.Guards(t.Context(), pool)
		if err != nil || len(guards) != 1 || guards[0].Lease != opts.Lease || guards[0].LeaseColumn != opts.LeaseColumn {
			t.Errorf("the guards are %+v, %v", guards, err)
		}
		exec(t, pool, "DROP TABLE g")
	}
}
