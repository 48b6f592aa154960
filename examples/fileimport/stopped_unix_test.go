//go:build unix

package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// An importer that is stopped in the middle of a transaction holds locks that
// its lease's end doesn't free.
func TestImport_GoesOnWhenAnotherIsStoppedInsideATransaction(t *testing.T) {
	t.Parallel()
	url, file := pgtest.Database(t), big(t, bigRecords)
	pool := pgtest.Connect(t, url)
	first := start(t, "import", file, "--database-url", url)
	t.Cleanup(func() { _ = first.Process.Kill(); first.wait() })
	untilRows(t, pool, "big", 1)

	// Its next INSERT waits for this lock when its rows are there; so it is in a transaction
	// when stopped. Without a trigger it could as well be in the middle of a COPY, which no
	// timeout ends before PostgreSQL 17.
	for _, sql := range []string{
		`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END'`,
		`CREATE TRIGGER gate AFTER INSERT ON big FOR EACH STATEMENT EXECUTE FUNCTION gate()`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for text(t, pool, `SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == "0" {
		if time.Now().After(deadline) {
			t.Fatal("it doesn't wait for the lock")
		}
	}
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	lapse(t, pool)
	if r := runProgram(t, "import", file, "--database-url", url, "--wait", "30s"); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	exact(t, pool, bigRecords)
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := first.wait(); r.code == 0 {
		t.Error("the stopped one didn't notice")
	}
	exact(t, pool, bigRecords)
}

func TestImport_RefusesAFIFOAtOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/f.csv"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	oneLineWith(t, runProgram(t, "import", path), 1, "not a regular file")
}
