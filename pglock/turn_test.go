package pglock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// A release between a waiter's first try and its row notifies nobody.
func TestAcquire_TriesAgainAfterItIsRegistered(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	holder, c := client(t, pool, slowPoll), client(t, pool, slowPoll)
	acquire(t, holder, name, nil)
	acquire(t, holder, name+"2", nil)
	granted(t, c, name+"2") // it listens from then on, which is no wake any more
	registered(t, pool, name+"2", 1)
	listening(t, pool)
	operator := begin(t, pool, pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), `LOCK TABLE gatepost.waiters IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	waiting := granted(t, c, name)
	blocked(t, pool, operator.Conn().PgConn().PID())
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
	commit(t, operator)
	release(t, within(t, 10*time.Second, waiting))
}

func TestWake_GivesEachClientItsTurn(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	queue := &queued{}
	many := client(t, pool, queue.slowPoll())
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	order := make(chan string, 4)
	var all sync.WaitGroup
	wait := func(c *pglock.Client, who string) {
		all.Go(func() {
			l, err := c.Acquire(context.WithoutCancel(t.Context()), name, nil)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			order <- who
			release(t, l)
		})
	}
	for range 3 {
		wait(many, "many")
	}
	registered(t, pool, name, 1)
	queue.reaches(t, 3)
	wait(client(t, pool, slowPoll), "one")
	registered(t, pool, name, 2)
	eventually(t, "two that LISTEN", 10*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity
			WHERE query = 'LISTEN gatepost' AND state = 'idle' AND datname = current_database()`) == 2
	})
	release(t, held)
	all.Wait()
	// It may be first: a LISTEN that is new wakes without a release.
	if first, second := <-order, <-order; first != "one" && second != "one" {
		t.Errorf("%s and then %s, want each client's turn", first, second)
	}
}

func TestHandOver_WakesTheCandidate(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	e := client(t, pool, slowPoll).Elector(name, nil)
	_, stop := slowToStop(t.Context(), t, e, nil)
	var waiting <-chan *pglock.Lease
	for i, holder := range []string{"b", "c", "heir"} {
		cfg := slowPoll
		cfg.Holder = holder
		waiting = granted(t, client(t, pool, cfg), name)
		registered(t, pool, name, i+1)
	}
	eventually(t, "three that LISTEN", 10*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity
			WHERE query = 'LISTEN gatepost' AND state = 'idle' AND datname = current_database()`) == 3
	})
	if err := e.HandOver("heir"); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	release(t, within(t, 4*time.Second, waiting))
}

// Without a notification too, and long before the reservation ends.
func TestHandOver_IsFoundByAPollOfTheCandidate(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, asleep(t, pool), name, nil)
	n := &tries{}
	waiting := granted(t, client(t, pool, pglock.Config{
		Holder: "heir", TTL: time.Minute, PollInterval: 20 * time.Millisecond, DisableNotify: true, Tracer: n,
	}), name)
	eventually(t, "the tries before it sleeps", 10*time.Second, func() bool { return n.over.Load() >= 2 })
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL, expires_at = clock_timestamp(),
		reserved_for = 'heir', reserved_until = clock_timestamp() + interval '1 h' WHERE name = $1`, name)
	release(t, within(t, 10*time.Second, waiting))
}

func TestInTxAll_LocksInTheOrderOfTheNames(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := asleep(t, pool)
	a, b := acquire(t, c, name+"a", nil), acquire(t, c, name+"b", nil)
	operator := lockRow(t, pool, name+"b")
	done := make(chan error, 1)
	go func() {
		done <- c.InTxAll(t.Context(), []pglock.Sequencer{b.Sequencer(), a.Sequencer(), a.Sequencer()}, nothing)
	}()
	blocked(t, pool, operator.Conn().PgConn().PID())
	_, err := pool.Exec(t.Context(), `SELECT FROM gatepost.leases WHERE name = $1 FOR UPDATE NOWAIT`, name+"a")
	if sqlState(err) != "55P03" {
		t.Errorf("error is %v: the first by name isn't locked", err)
	}
	commit(t, operator)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
