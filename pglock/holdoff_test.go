package pglock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// gateReleases makes each release wait for the returned transaction, behind its last
// statement and before it is committed.
func gateReleases(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	exec(t, pool, `CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`)
	exec(t, owner(t, pool), `CREATE CONSTRAINT TRIGGER gate AFTER UPDATE ON gatepost.leases DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (old.nonce IS NOT NULL AND new.nonce IS NULL) EXECUTE FUNCTION gate()`)
	gate := begin(t, pool, pgx.TxOptions{})
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	return gate
}

// lateWaiter waits for a name whose release has looked for waiters, found none, and isn't
// committed; each of its polls is far away. hold makes the release wait for the transaction
// that it returns. ready says that the waiter doesn't look again before the release is
// committed.
func lateWaiter(t *testing.T, pool *pgxpool.Pool, name string, poll time.Duration, hold func() pgx.Tx, ready func(tries int) bool) {
	t.Helper()
	tries := &ended{tries: map[string]int{}}
	cfg := pglock.Config{TTL: slowPoll.TTL, PollInterval: poll, Tracer: tries}
	first, second := client(t, pool, slowPoll), client(t, pool, cfg)
	held := acquire(t, first, name, nil)
	acquire(t, first, name+"2", nil)
	granted(t, second, name+"2") // a wake comes with its LISTEN
	listening(t, pool)
	eventually(t, "a third try, for that wake", 10*time.Second, func() bool { return tries.of(name+"2") >= 3 })

	gate := hold()
	released := make(chan error, 1)
	go func() { released <- held.Release(t.Context()) }()
	blocked(t, pool, pgtest.Backend(t, gate))
	waiting := granted(t, second, name)
	eventually(t, "a waiter that doesn't look again", 10*time.Second, func() bool { return ready(tries.of(name)) })
	commit(t, gate)
	if err := <-released; err != nil {
		t.Errorf("Release: %v", err)
	}
	release(t, within(t, 10*time.Second, waiting))
}

// Nobody wakes it, so it waits for the release: one that is about to be committed, and one
// that is in the middle of its statement; and also where it polls so seldom that it might as
// well never do.
func TestAcquire_CatchesUpWithAReleaseThatDidNotSeeIt(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		poll time.Duration
		hold func(*testing.T, *pgxpool.Pool, string) pgx.Tx
	}{
		"before its COMMIT":       {slowPoll.PollInterval, func(t *testing.T, pool *pgxpool.Pool, _ string) pgx.Tx { t.Helper(); return gateReleases(t, pool) }},
		"before its row":          {slowPoll.PollInterval, lockRow},
		"with a poll once a year": {365 * 24 * time.Hour, lockRow},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
			hold := func() pgx.Tx { return c.hold(t, pool, name) }
			lateWaiter(t, pool, name, c.poll, hold, func(tries int) bool { return tries >= 2 || catchesUp(t, pool) })
		})
	}
}

// catchesUp says whether a waiter waits for a release.
func catchesUp(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE '%name: WaiterCatchUp%' AND wait_event_type = 'Lock')`)
}

// Somebody had the name's lock, so the release could not hold the waiter off, and looks for
// it once more behind its COMMIT.
func TestRelease_WakesWhomItCouldNotHoldOff(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	other := begin(t, pool, pgx.TxOptions{})
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_xact_lock_shared($1)`, pglock.WaitLock(name)); err != nil {
		t.Fatal(err)
	}
	lateWaiter(t, pool, name, slowPoll.PollInterval, func() pgx.Tx { return gateReleases(t, pool) }, func(tries int) bool { return tries >= 2 })
	commit(t, other)
}

// Outside READ COMMITTED, what a release sees is as old as its lock.
func TestRelease_TakesNobodysWordOutsideReadCommitted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for level, want := range map[pgx.TxIsoLevel]bool{pgx.ReadCommitted: false, pgx.RepeatableRead: true, pgx.Serializable: true} {
		l := acquire(t, client(t, pool, pglock.Config{}), pgtest.Name(t)+string(level[0]), nil)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		free := lockdb.LeaseFreeParams{Name: l.Name(), Nonce: strings.Split(l.Sequencer().String(), ":")[4], Token: l.Token()}
		row, err := lockdb.New(tx).LeaseFree(t.Context(), free)
		if err != nil || row.Waited != want {
			t.Errorf("%s: waited for: %t, %v; want %t", level, row.Waited, err, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What nobody waits for is released in one round trip, and that is all.
func TestRelease_SendsNoWakeWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	counter, cfg := &counting{}, pgtest.ReadCommitted(t).Config()
	cfg.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c, name := client(t, pool, slowPoll), pgtest.Name(t)
	// One has died, and the other waits for something else.
	exec(t, pool, `INSERT INTO gatepost.waiters (client, waiter, name, slot, holder, since, expires_at) VALUES
		('dead', 1, $1, 0, 'dead', now(), now() - interval '1 s'), ('other', 1, $1, 1, 'other', now(), now() + interval '1 h')`, name)
	release(t, acquire(t, c, name, nil))
	if err := c.Close(t.Context()); err != nil { // with what it does behind
		t.Fatal(err)
	}
	if n := counter.wakes.Load(); n != 0 {
		t.Errorf("%d wakes", n)
	}
}

// Its lock is the transaction's, not the session's, which lives on in the pool.
func TestRelease_LeavesNoLock(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	release(t, acquire(t, client(t, pool, slowPoll), name, nil))
	other := begin(t, pool, pgx.TxOptions{})
	var had bool
	if err := other.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1)`, pglock.WaitLock(name)).Scan(&had); err != nil || !had {
		t.Errorf("the lock can be had: %t, %v", had, err)
	}
}
