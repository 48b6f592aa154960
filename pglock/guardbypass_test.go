package pglock_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A table that is a partition or a child of another is written to through that one too,
// which fires none of its triggers for statements.
func TestGuard_HoldsWhatComesThroughAParent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	l := acquire(t, asleep(t, pool), "a", nil)
	exec(t, pool, "CREATE TABLE p (lease text, v int) PARTITION BY LIST (v)")
	exec(t, pool, "CREATE TABLE g PARTITION OF p FOR VALUES IN (1)")
	exec(t, pool, "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)")
	exec(t, pool, "INSERT INTO p VALUES ('a', 1), ('a', 2)")
	for kind, opts := range bothGuards {
		guard(t, pool, "g", opts)
		if found := holes(t, pool); found != nil {
			t.Errorf("%s: holes %+v", kind, found)
		}
		for _, sql := range []string{
			"INSERT INTO p VALUES ('a', 1)", "UPDATE p SET lease = 'b' WHERE v = 1", "DELETE FROM p", "UPDATE p SET v = 1 WHERE v = 2", "TRUNCATE p",
		} {
			_, err := pool.Exec(t.Context(), sql)
			wantGuard(t, kind+", "+sql, err, "public.g")
		}
		exec(t, pool, "INSERT INTO p VALUES ('a', 2)")
		if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
			return run(t, tx, "INSERT INTO p VALUES ('a', 1)", "UPDATE p SET v = 1", "UPDATE g SET lease = 'a'", "DELETE FROM p WHERE v = 2")
		}); err != nil {
			t.Errorf("%s: fenced: %v", kind, err)
		}
		guard(t, pool, "p", opts) // takes the partition's triggers for its own
		if found := holes(t, pool); found != nil {
			t.Errorf("%s: with the parent guarded, holes %+v", kind, found)
		}
		_, err := pool.Exec(t.Context(), "INSERT INTO p VALUES ('a', 1)")
		wantGuard(t, kind, err)
		exec(t, pool, "SELECT gatepost.unguard_table('p')")
		exec(t, pool, "INSERT INTO p VALUES ('a', 1), ('a', 2)")
	}
}

// What becomes a partition or a child after it was guarded is found, and mended.
func TestGuard_FindsAParentThatCameLater(t *testing.T) {
	t.Parallel()
	for how, join := range map[string]string{
		"attached": "CREATE TABLE p (lease text, v int) PARTITION BY LIST (v); ALTER TABLE p ATTACH PARTITION g FOR VALUES IN (1)",
		"inherits": "CREATE TABLE p (lease text, v int); ALTER TABLE g INHERIT p",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Connect(t, pgtest.Database(t))
			exec(t, pool, "CREATE TABLE g (lease text, v int)")
			exec(t, pool, "INSERT INTO g VALUES ('a', 1)")
			guard(t, pool, "g", byLease("a"))
			for _, sql := range strings.Split(join, ";") {
				exec(t, pool, sql)
			}
			exec(t, pool, "UPDATE p SET lease = 'b'") // open
			if hole := onlyHole(t, pool); hole.Table[1] != "g" || hole.Problem != pglock.GuardRowsMissing {
				t.Errorf("hole %+v", hole)
			}
			guard(t, pool, "g", byLease("a"))
			if found := holes(t, pool); found != nil {
				t.Errorf("guarded again, holes %+v", found)
			}
			_, err := pool.Exec(t.Context(), "UPDATE p SET lease = 'c'")
			wantGuard(t, "through the parent", err)
		})
	}
}

// A lease whose name holds a line break and the number of the transaction is not taken
// for another.
func TestGuard_ALeaseIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE g (lease text)")
	for kind, opts := range bothGuards {
		guard(t, pool, "g", opts)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // the lease is acquired behind its first snapshot
		var xid string
		if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&xid); err != nil {
			t.Fatal(err)
		}
		name := "z\n" + xid + "/a"
		seq := acquire(t, asleep(t, pool), name, nil).Sequencer().String()
		wantGuard(t, kind, run(t, tx, "SELECT gatepost.fence('"+seq+"')", "INSERT INTO g VALUES ('a')"), `lease "a"`)
		_ = tx.Rollback(t.Context())
	}
	// Its own rows it may write.
	name := "z\n1/a"
	l := acquire(t, asleep(t, pool), name, nil)
	guard(t, pool, "g", byColumn("lease"))
	if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO g VALUES ($1), ($1)", name)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A guard's functions run as Gatepost's owner, and nothing that a table's owner made runs
// in them.
func TestGuard_RunsNothingOfTheTablesOwner(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	admin := pgtest.Connect(t, pgtest.Owner(t, database))
	role := "role_" + strings.ToLower(pgtest.Name(t)[:6]) + fmt.Sprint(value[int](t, admin, "SELECT oid::int % 1000000 FROM pg_database WHERE datname = current_database()"))
	exec(t, admin, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN")
	exec(t, admin, "GRANT CONNECT ON DATABASE "+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()+" TO "+pgx.Identifier{role}.Sanitize())
	exec(t, admin, "GRANT USAGE, CREATE ON SCHEMA public TO "+pgx.Identifier{role}.Sanitize())
	grants, err := migrations.Grants(role)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, grants)
	u, err := url.Parse(pgtest.Owner(t, database))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	pool := pgtest.Connect(t, u.String())
	l := acquire(t, asleep(t, pool), "a", nil)
	for _, sql := range []string{
		"CREATE TYPE mood AS ENUM ('good')", "CREATE TABLE ran (as_whom text)",
		`CREATE FUNCTION spring(mood) RETURNS text LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.ran VALUES (current_user); RETURN $$a$$; END'`,
		`CREATE FUNCTION json_spring(mood) RETURNS json LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.ran VALUES (current_user); RETURN $$null$$::json; END'`,
		"CREATE CAST (mood AS text) WITH FUNCTION spring(mood)", "CREATE CAST (mood AS json) WITH FUNCTION json_spring(mood)",
		"CREATE TABLE g (lease text, m mood)", "CREATE TABLE by_mood (m mood)",
		"CREATE TRIGGER t AFTER INSERT ON by_mood FOR EACH ROW EXECUTE FUNCTION gatepost.guard_row('column', 'm')",
		"CREATE TRIGGER u AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION gatepost.guard_row('column', 'lease')",
	} {
		exec(t, pool, sql)
	}
	if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO g VALUES ('a', 'good')")
		return err
	}); err != nil {
		t.Error(err)
	}
	_ = l.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO by_mood VALUES ('good')")
		wantGuard(t, "a column of another type", err, "a row names none")
		return err
	})
	if n := value[int](t, pool, "SELECT count(*)::int FROM ran"); n != 0 {
		t.Errorf("code of the table's owner ran %d times, as %s", n, value[string](t, pool, "SELECT string_agg(as_whom, ', ') FROM ran"))
	}
}

// Whatever of a guard was disabled, dropped or changed, guarding the table again mends it.
func TestGuardTable_MendsWhatWasChanged(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	for kind, opts := range bothGuards {
		for _, fault := range []string{
			"ALTER TABLE g DISABLE TRIGGER gatepost_guard",
			"ALTER TABLE g ENABLE REPLICA TRIGGER gatepost_guard_insert",
			"ALTER TABLE g1 DISABLE TRIGGER ALL",
			"DROP TRIGGER gatepost_guard ON g",
			"DROP TRIGGER gatepost_guard ON g1",
			"DROP TRIGGER gatepost_guard_insert ON g",
			"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT ON g FOR EACH STATEMENT EXECUTE FUNCTION nothing()",
			"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT ON g FOR EACH STATEMENT EXECUTE FUNCTION gatepost.guard_statement(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT OR UPDATE OR DELETE ON g FOR EACH STATEMENT EXECUTE FUNCTION gatepost.guard_statement(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON g WHEN (false) EXECUTE FUNCTION gatepost.guard_statement(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT OR UPDATE OF v OR DELETE OR TRUNCATE ON g EXECUTE FUNCTION gatepost.guard_statement(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard_insert AFTER INSERT ON g FOR EACH ROW WHEN (false) EXECUTE FUNCTION gatepost.guard_row(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard_insert AFTER DELETE ON g FOR EACH ROW EXECUTE FUNCTION gatepost.guard_row(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard_update AFTER UPDATE OF v ON g FOR EACH ROW EXECUTE FUNCTION gatepost.guard_row(" + triggerArgs[kind] + ")",
			"CREATE OR REPLACE TRIGGER gatepost_guard_insert AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION nothing()",
		} {
			exec(t, pool, "CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)")
			exec(t, pool, "CREATE TABLE g1 PARTITION OF g FOR VALUES IN (1)")
			guard(t, pool, "g", opts)
			sound := definitions(t, pool)
			exec(t, pool, fault)
			if found := holes(t, pool); len(found) == 0 {
				t.Errorf("%s: after %s there is no hole", kind, fault)
			}
			guard(t, pool, "g", opts)
			if found := holes(t, pool); found != nil {
				t.Errorf("%s: after %s, guarded again, there are holes %+v", kind, fault, found)
			}
			if got := definitions(t, pool); got != sound {
				t.Errorf("%s: after %s, guarded again, the triggers are\n%s\nand not\n%s", kind, fault, got, sound)
			}
			exec(t, pool, "DROP TABLE g")
		}
	}
}

var triggerArgs = map[string]string{"lease": "'lease', 'a'", "column": "'column', 'lease'"}

// definitions are the triggers of a database's tables.
func definitions(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return value[string](t, pool, `SELECT string_agg(tgenabled::text || ' ' || pg_get_triggerdef(oid), E'\n' ORDER BY tgrelid, tgname)
		FROM pg_trigger WHERE tgrelid IN ('g'::regclass, 'g1'::regclass)`)
}

// A guard that has lost a part is replaced whole.
func TestGuardTable_ReplacesAGuardThatLostItsStatementTrigger(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE g (a text, b text)")
	guard(t, pool, "g", byColumn("a"))
	exec(t, pool, "DROP TRIGGER gatepost_guard ON g")
	if hole := onlyHole(t, pool); hole.Problem != pglock.GuardStatementMissing {
		t.Errorf("hole %+v", hole)
	}
	guard(t, pool, "g", byColumn("b"))
	if n := value[int](t, pool, `SELECT count(*)::int FROM pg_trigger WHERE tgrelid = 'g'::regclass AND tgargs = 'column\000b\000'`); n != 4 {
		t.Errorf("%d triggers of 4 are for the new column", n)
	}
	exec(t, pool, "DROP TRIGGER gatepost_guard ON g")
	guard(t, pool, "g", byLease("a"))
	if n := value[int](t, pool, `SELECT count(*)::int FROM pg_trigger WHERE tgrelid = 'g'::regclass`); n != 1 {
		t.Errorf("of the replaced guard, there are %d triggers, want 1", n)
	}
}

// A partition has no other guard than its parent.
func TestGuardTable_RefusesAnotherLeaseForAPartition(t *testing.T) {
	t.Parallel()
	pool, _ := partitioned(t, byColumn("lease"))
	exec(t, pool, "CREATE TABLE g4 PARTITION OF g FOR VALUES IN (4)")
	for _, table := range []string{"g1", "g4"} {
		err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{table}, byLease("b"))
		if codeOf(err) != "42710" {
			t.Errorf("%s under another lease: %v", table, err)
		}
	}
}

// Names that a collation takes for equal are different leases.
func TestGuardTable_RefusesACollationThatTakesNamesForEqual(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	_, err := pool.Exec(t.Context(), "CREATE COLLATION any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false)")
	if codeOf(err) == "0A000" {
		return // the server was built without ICU
	}
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "CREATE TABLE g (lease text COLLATE any_case)")
	err = pglock.GuardTable(t.Context(), pool, pgx.Identifier{"g"}, byColumn("lease"))
	if codeOf(err) != "42804" || !strings.Contains(err.Error(), "collation") {
		t.Errorf("guarded by a column of such a collation: %v", err)
	}
}

// A fence in SQL says of what can't be one why, and what to do.
func TestSQLFence_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	seq := acquire(t, asleep(t, pool), pgtest.Name(t), nil).Sequencer().String()
	for _, c := range []struct{ begin, sql, code, message, hint string }{
		{"BEGIN", "SELECT gatepost.fence(NULL, 0, 7, '" + aNonce + "')", "22023", "NULL was given for the name", "gatepost.fence(SEQUENCER)"},
		{"BEGIN", "SELECT gatepost.fence('a', NULL, NULL, '" + aNonce + "')", "22023", "NULL was given for the slot, token", ""},
		{"BEGIN", "SELECT gatepost.fence('a', 0, 7, NULL)", "22023", "NULL was given for the nonce", ""},
		{"BEGIN", "SELECT gatepost.fence(NULL)", "22023", "this is no sequencer", "v1:exclusive"},
		{"BEGIN READ ONLY", "SELECT gatepost.fence('" + seq + "')", "25006", "a fence locks its lease, and this transaction is READ ONLY", "READ WRITE"},
		{"BEGIN READ ONLY", "SELECT gatepost.fence('a', 0, 7, '" + aNonce + "')", "25006", "READ ONLY", "READ WRITE"},
	} {
		conn := session(t, pool)
		_, err := conn.PgConn().Exec(t.Context(), c.begin+"; "+c.sql).ReadAll()
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pgErr.Code != c.code || !strings.Contains(pgErr.Message, c.message) || !strings.Contains(pgErr.Hint, c.hint) || pgErr.Hint == "" {
			t.Errorf("%s; %s: %+v", c.begin, c.sql, pgErr)
		}
	}
}

// A partition in another server is guarded as far as a trigger there can be.
func TestGuardTable_TakesForeignPartitions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	exec(t, pool, "CREATE FOREIGN DATA WRAPPER nowhere")
	exec(t, pool, "CREATE SERVER s FOREIGN DATA WRAPPER nowhere")
	for kind, opts := range bothGuards {
		exec(t, pool, "CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)")
		exec(t, pool, "CREATE FOREIGN TABLE f PARTITION OF g FOR VALUES IN (1) SERVER s")
		guard(t, pool, "g", opts)
		if found := holes(t, pool); found != nil {
			t.Errorf("%s: holes %+v", kind, found)
		}
		exec(t, pool, "DROP TABLE g")
	}
}
