package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/jackc/pgx/v5"
)

// A table that somebody has locked, and a check that takes too long, are told, and the
// other checks go on.
func TestExamine_AFailedCheckIsToldAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	run(t, database, "ALTER TABLE gatepost.fences SET UNLOGGED")
	conn := connect(t, database)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE gatepost.idempotency_keys"); err != nil {
		t.Fatal(err)
	}
	opts := doctor.Options{Timeout: 300 * time.Millisecond}
	var r *doctor.Report
	until(t, "a look that only the lock stops", func() bool {
		r = examine(t, database, opts)
		return r.Failed() == 3
	})
	if got := found(r); len(got) != 4 || got[0] != "unlogged weakens gatepost.fences" {
		t.Errorf("it found %q", got)
	}
	for _, check := range []string{"trigger", "key-backlog", "key-running"} {
		if f := result(t, r, check).Failed; !strings.Contains(f, "a table was locked for longer than 150ms") {
			t.Errorf("%s failed by %q", check, f)
		}
	}
}

func TestExamine_ReadsTimesWhateverTheDateStyleIs(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	run(t, database, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = SQL, DMY', current_database()); END $$`)
	if n := examine(t, database, patient()).Failed(); n > 0 {
		t.Errorf("%d checks failed", n)
	}
}

// A connection that is lost in the middle ends all, and nothing is taken for looked at.
func TestExamine_ALostConnectionIsAnError(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	conn := connect(t, database)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE gatepost.idempotency_keys"); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := doctor.Examine(t.Context(), cfg, doctor.Options{Timeout: 2 * time.Minute})
		ended <- err
	}()
	looks := connect(t, database) // a transaction sees the sessions of its first look again and again
	until(t, "a check that waits", func() bool {
		var ended bool
		if err := looks.QueryRow(t.Context(), `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity
			WHERE datname = current_database() AND $1::integer = ANY (pg_blocking_pids(pid))`, conn.PgConn().PID()).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		return ended
	})
	if err := <-ended; err == nil {
		t.Error("with a connection that was lost it has no error")
	}
}

func TestExamine_WhatEndsItAllIsAnError(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/none?connect_timeout=5")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doctor.Examine(t.Context(), cfg, doctor.Options{}); err == nil {
		t.Error("without a server it has no error")
	}
}

// It can't write, whatever it is tricked into calling: here a policy's function.
func TestExamine_CanOnlyRead(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	role := makeRole(t, database, "")
	run(t, database, insertLease("n", "1", "1 hour"), "CREATE TABLE trap (n int)", "GRANT INSERT ON trap TO "+role,
		"GRANT USAGE ON SCHEMA gatepost TO "+role, "GRANT SELECT ON ALL TABLES IN SCHEMA gatepost TO "+role,
		"CREATE FUNCTION spring() RETURNS boolean LANGUAGE sql VOLATILE AS 'INSERT INTO public.trap VALUES (1) RETURNING true'",
		"ALTER TABLE gatepost.leases ENABLE ROW LEVEL SECURITY", "CREATE POLICY trap ON gatepost.leases USING (public.spring())")
	r := examine(t, as(t, database, role), patient())
	if f := result(t, r, "clock-back").Failed; !strings.Contains(f, "read-only") {
		t.Errorf("a check that was made to write ended with %q", f)
	}
	if len(result(t, r, "row-rewrite").Findings) != 1 {
		t.Error("it doesn't tell why")
	}
}

func TestExamine_FindsTenFaultsInOneDatabase(t *testing.T) {
	t.Parallel()
	database := faulty.database(t)
	lease := acquired(t, database, "import/orders")[0]
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	run(t, database,
		dropToken,
		"ALTER TABLE gatepost.fences SET UNLOGGED",
		"ALTER DATABASE "+cfg.Database+" SET synchronous_commit = off",
		"CREATE INDEX leases_expires_at_idx ON gatepost.leases (expires_at)",
		"ALTER TABLE gatepost.leases SET (fillfactor = 100, autovacuum_enabled = false)",
		"ALTER TABLE gatepost.idempotency_keys DISABLE TRIGGER ALL",
		"GRANT UPDATE ON gatepost.leases TO PUBLIC",
		insertLease("old", "7", "-3 hours"),
		insertKey("refund", "2", "NULL", "-3 days"),
		insertKey("charge", "1", "clock_timestamp() - interval '3 hours'", "1 day"),
	)
	open, prepared := connect(t, database), connect(t, database)
	fence(t, open, lease)
	fence(t, prepared, lease)
	if _, err := prepared.Exec(t.Context(), "PREPARE TRANSACTION 'left behind'"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"constraint weakens gatepost.idempotency_steps",
		"token-index weakens gatepost.leases",
		"extra-index note gatepost.leases_expires_at_idx",
		"unlogged weakens gatepost.fences",
		"trigger weakens gatepost.idempotency_keys",
		"public-grant weakens gatepost.leases",
		"fsync weakens fsync",
		"fsync weakens full_page_writes",
		"synchronous-commit weakens database " + cfg.Database,
		"prepared note max_prepared_transactions",
		"prepared weakens lease import/orders",
		"fenced weakens lease import/orders",
		"lapsed note gatepost.leases",
		"key-backlog note gatepost.idempotency_keys",
		"key-running note operation charge",
		"fillfactor note gatepost.leases",
		"autovacuum note gatepost.leases",
		"autovacuum note autovacuum",
	}
	if got := found(examine(t, database, strict())); !slices.Equal(got, want) {
		t.Errorf("it found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	run(t, database, "ROLLBACK PREPARED 'left behind'")
}
