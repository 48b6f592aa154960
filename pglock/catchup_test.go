package pglock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// registerLater holds up whoever begins to wait, until the returned transaction ends.
func registerLater(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	operator := begin(t, owner(t, pool), pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), `LOCK TABLE gatepost.waiters IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	return operator
}

// The release begins after the waiter's first try, and looks before the waiter's row is
// there: only a wait that comes behind the row is one for that release.
func TestAcquire_CatchesUpBehindItsRegistration(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	tries := &ended{tries: map[string]int{}}
	first := client(t, pool, slowPoll)
	second := client(t, pool, pglock.Config{TTL: slowPoll.TTL, PollInterval: slowPoll.PollInterval, Tracer: tries})
	held := acquire(t, first, name, nil)
	acquire(t, first, name+"2", nil)
	granted(t, second, name+"2") // a wake comes with its LISTEN
	listening(t, pool)
	eventually(t, "a third try, for that wake", 10*time.Second, func() bool { return tries.of(name+"2") >= 3 })

	gate, operator := gateReleases(t, pool), registerLater(t, pool)
	waiting := granted(t, second, name)
	blocked(t, pool, pgtest.Backend(t, operator))
	released := make(chan error, 1)
	go func() { released <- held.Release(t.Context()) }()
	blocked(t, pool, pgtest.Backend(t, gate))
	commit(t, operator)
	eventually(t, "a waiter that doesn't look again", 10*time.Second, func() bool { return tries.of(name) >= 2 || catchesUp(t, pool) })
	commit(t, gate)
	if err := <-released; err != nil {
		t.Errorf("Release: %v", err)
	}
	release(t, within(t, 10*time.Second, waiting))
}

// Those who begin to wait together wait for the releases of all of their names, and are
// careful with the server's lock table.
func TestAcquire_CatchesUpWithEachOfManyNames(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	const names, most = 150, 100
	queue := &queued{}
	holder, c := client(t, pool, slowPoll), client(t, pool, queue.slowPoll())
	for i := range names {
		acquire(t, holder, fmt.Sprint(name, i), nil)
	}
	operator := registerLater(t, pool)
	granted(t, c, fmt.Sprint(name, 0))
	blocked(t, pool, pgtest.Backend(t, operator))
	for i := 1; i < names; i++ { // they are registered in the round that follows
		granted(t, c, fmt.Sprint(name, i))
		queue.reaches(t, i+1)
	}
	release := begin(t, pool, pgx.TxOptions{})
	if _, err := release.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, pglock.WaitLock(fmt.Sprint(name, names-2))); err != nil {
		t.Fatal(err)
	}
	commit(t, operator)
	blocked(t, pool, pgtest.Backend(t, release))
	if n := value[int](t, pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n > most {
		t.Errorf("%d locks at once, want %d at most", n, most)
	}
	commit(t, release)
}

// A release that hangs is no reason not to look, nor to lose a connection; and another
// waiter is none to wait.
func TestAcquire_CatchesUpForAPollAtMost(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	for lock, want := range map[string]string{"pg_advisory_xact_lock": "55P03", "pg_advisory_xact_lock_shared": ""} {
		name, ends := pgtest.Name(t)+lock, &catchUps{}
		acquire(t, client(t, pool, slowPoll), name, nil)
		other := begin(t, pool, pgx.TxOptions{})
		if _, err := other.Exec(t.Context(), `SELECT `+lock+`($1)`, pglock.WaitLock(name)); err != nil {
			t.Fatal(err)
		}
		traced := poolWith(t, pool.Config().ConnString(), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = ends })
		granted(t, client(t, traced, pglock.Config{TTL: time.Minute, PollInterval: 50 * time.Millisecond}), name)
		eventually(t, "the end of its wait", 20*time.Second, func() bool { return ends.last.Load() != nil })
		if got := *ends.last.Load(); got != want {
			t.Errorf("its wait for %s ended with %q, want %q", lock, got, want)
		}
	}
}

// catchUps notes how WaiterCatchUp ended, as a tracer.
type catchUps struct {
	counting
	last atomic.Pointer[string]
}

func (c *catchUps) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if state := sqlState(data.Err); strings.Contains(data.SQL, "name: WaiterCatchUp") {
		c.last.Store(&state)
	}
}

// Two clients number their waiters alike.
func TestSweep_TakesTheDeadAndNobodyElse(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, `INSERT INTO gatepost.waiters (client, waiter, name, slot, holder, since, expires_at) VALUES
		('dead', 1, 'n', 0, 'x', now(), now() - interval '2 min'), ('dying', 1, 'n', 0, 'x', now(), now() - interval '10 s'),
		('alive', 1, 'n', 0, 'x', now(), now() + interval '1 h')`)
	if n, err := lockdb.New(pool).WaiterSweep(t.Context()); err != nil || n != 1 {
		t.Errorf("%d rows, %v; want one", n, err)
	}
	if left := value[string](t, pool, `SELECT string_agg(client, ' ' ORDER BY client) FROM gatepost.waiters`); left != "alive dying" {
		t.Errorf("left are %s", left)
	}
}
