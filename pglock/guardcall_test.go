package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// handles are what GuardTable can be called with: a pool, and connections that are in no
// transaction.
func handles(t *testing.T, pool *pgxpool.Pool) map[string]pglock.DBTX {
	t.Helper()
	pooled, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooled.Release)
	return map[string]pglock.DBTX{"pool": pool, "pool's connection": pooled, "connection": session(t, pool)}
}

// A guard that waited for another one sees what that one did, whatever the session's
// isolation is: else the triggers of both would be left.
func TestGuardTable_SeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.Database(t), setting("default_transaction_isolation", "serializable"))
	for what, db := range handles(t, pool) {
		exec(t, pool, "CREATE TABLE g (lease text)")
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err := run(t, tx, "SELECT gatepost.guard_table('g', lease_column => 'lease')"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- pglock.GuardTable(context.WithoutCancel(t.Context()), db, pgx.Identifier{"g"}, byLease("a"))
		}()
		eventually(t, "a call that waits", 20*time.Second, func() bool {
			return value[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'g'::regclass AND NOT granted)")
		})
		commit(t, tx)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := value[int](t, pool, "SELECT count(*)::int FROM pg_trigger WHERE tgrelid = 'g'::regclass"); n != 1 {
			t.Errorf("%s: %d triggers, want the one of the later guard", what, n)
		}
		exec(t, pool, "DROP TABLE g")
	}
}

// In a caller's transaction it is the caller's to commit, on whatever handle.
func TestGuardTable_IsUndoneWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.Database(t), setting("default_transaction_isolation", "read committed"))
	exec(t, pool, "CREATE TABLE g (lease text)")
	for what, db := range handles(t, pool) {
		if db == pglock.DBTX(pool) {
			continue
		}
		for _, call := range []func() error{
			func() error { _, err := db.Exec(t.Context(), "BEGIN"); return err },
			func() error { return pglock.GuardTable(t.Context(), db, pgx.Identifier{"g"}, byLease("a")) },
			func() error { _, err := db.Exec(t.Context(), "ROLLBACK"); return err },
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if guards, err := pglock.Guards(t.Context(), pool); err != nil || guards != nil {
			t.Errorf("%s: after ROLLBACK the guards are %+v, %v", what, guards, err)
		}
		exec(t, pool, "SELECT gatepost.unguard_table('g')")
	}
}

// Tables of one name in two schemas are two.
func TestGuards_TellsSchemasApart(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	for _, schema := range []string{"one", "two"} {
		exec(t, pool, "CREATE SCHEMA "+schema)
		exec(t, pool, "CREATE TABLE "+schema+".g ()")
		if err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{schema, "g"}, byLease("of "+schema)); err != nil {
			t.Fatal(err)
		}
	}
	guards, err := pglock.Guards(t.Context(), pool)
	if err != nil || len(guards) != 2 || guards[0].Table[0] != "one" || guards[0].Lease != "of one" || guards[1].Table[0] != "two" || guards[1].Lease != "of two" {
		t.Errorf("the guards are %+v, %v", guards, err)
	}
}

// A child of two children of one table is met twice on the way, and guarded once.
func TestUnguard_OfAChildOfTwo(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE g (lease text)")
	exec(t, pool, "CREATE TABLE b () INHERITS (g)")
	exec(t, pool, "CREATE TABLE c () INHERITS (g)")
	exec(t, pool, "CREATE TABLE d () INHERITS (b, c)")
	for kind, opts := range bothGuards {
		guard(t, pool, "g", opts)
		if found := holes(t, pool); found != nil {
			t.Errorf("%s: holes %+v", kind, found)
		}
		_, err := pool.Exec(t.Context(), "INSERT INTO d VALUES ('a')")
		wantGuard(t, kind, err, "public.d")
		if removed, err := pglock.UnguardTable(t.Context(), pool, pgx.Identifier{"g"}); err != nil || !removed {
			t.Errorf("%s: UnguardTable is %t, %v", kind, removed, err)
		}
		exec(t, pool, "INSERT INTO d VALUES ('a')")
	}
}

// A lease's name is measured in bytes, also where SQL gives it.
func TestGuardTable_InSQLTakesNamesThatALeaseCanHave(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE g (lease text)")
	for lease, ok := range map[string]bool{"": false, "a": true, strings.Repeat("é", 127) + "a": true, strings.Repeat("é", 128): false} {
		_, err := pool.Exec(t.Context(), "SELECT gatepost.guard_table('g', $1)", lease)
		if ok && err != nil || !ok && codeOf(err) != "22023" {
			t.Errorf("a name of %d bytes: %v", len(lease), err)
		}
	}
}

// A sequencer is of one slot, mode and version, and with a colon in its name it is
// whole; what is none is told without the nonce in it.
func TestSQLFence_TakesASequencerAsItIs(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	name := pgtest.Name(t) + ":a:b"
	c := asleep(t, pool)
	good := acquire(t, c, name, nil).Sequencer().String()
	replaced := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	token := strings.Split(good, ":")[3]
	for text, code := range map[string]string{
		good: "", strings.ToUpper(nonceOf(parsed(t, good))): "22023",
		replaced(nonceOf(parsed(t, good)), strings.ToUpper(nonceOf(parsed(t, good)))): "",
		replaced(":0:", ":1:"): pglock.CodeFenced, replaced("exclusive", "shared"): "22023", replaced("v1", "v2"): "22023",
		replaced(token, "x"): "22023", replaced(token, "99999999999999999999"): "22023", replaced(":0:", "::"): "22023",
		strings.TrimSuffix(good, ":b"): pglock.CodeFenced,
	} {
		_, err := pool.Exec(t.Context(), "SELECT gatepost.fence($1)", text)
		if codeOf(err) != code || code == "" && err != nil {
			t.Errorf("%s: %v, want %q", text, err, code)
			continue
		}
		if strings.Contains(text, ":1:") && !strings.Contains(err.Error(), "there is no such lease") {
			t.Errorf("of another slot it says %v", err)
		}
		if code == "22023" && strings.Contains(err.Error(), nonceOf(parsed(t, good))) {
			t.Errorf("%s: the error shows the nonce: %v", text, err)
		}
	}
	tx := begin(t, pool, pgx.TxOptions{})
	if err := run(t, tx, "SELECT gatepost.fence('"+good+"')", "SELECT gatepost.fence('"+good+"')"); err != nil {
		t.Fatal(err)
	}
	var presented string
	if err := tx.QueryRow(t.Context(), "SELECT current_setting('gatepost.fence')").Scan(&presented); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(presented, "v1:"); n != 1 {
		t.Errorf("fenced twice, it is presented %d times: %s", n, presented)
	}
}

// What is presented beside a good fence and has expired is passed over, and not locked:
// its takeover doesn't wait.
func TestGuard_LocksNoLeaseThatHasExpired(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	c, live, lapsed := asleep(t, pool), pgtest.Name(t), pgtest.Name(t)
	a, b := acquire(t, c, live, nil), acquire(t, c, lapsed, nil)
	table := guardedTable(t, pool, "(note text)", byLease(live))
	expire(t, pool, lapsed)
	tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	present(t, tx, b.Sequencer().String(), a.Sequencer().String())
	if err := insert(t.Context(), tx, table, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := asleep(t, pool).TryAcquire(t.Context(), lapsed, nil); err != nil {
		t.Errorf("the takeover of the other: %v", err)
	}
	if _, err := asleep(t, pool).TryAcquire(t.Context(), live, nil); !errors.Is(err, pglock.ErrHeld) {
		t.Errorf("TryAcquire of the live one: %v", err)
	}
}
