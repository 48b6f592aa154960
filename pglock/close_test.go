package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// working starts a Do that goes on until finish is closed, whatever its context
// says, and tells what became of it.
func working(t *testing.T, c *pglock.Client, name string, finish <-chan struct{}) (cause, result chan error) {
	t.Helper()
	started := make(chan struct{})
	cause, result = make(chan error, 1), make(chan error, 1)
	go func() {
		result <- c.Do(context.WithoutCancel(t.Context()), name, nil, func(ctx context.Context, l *pglock.Lease) error {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			<-finish
			return l.Err()
		})
	}()
	soon(t, "start of the work", started)
	return cause, result
}

func TestClose_WaitsForTheWorkAndKeepsItsLeaseAlive(t *testing.T) {
	t.Parallel()
	pool, name, other := pgtest.Pool(t), pgtest.Name(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{TTL: long, RenewEvery: often})
	finish := make(chan struct{})
	cause, result := working(t, c, name, finish)
	acquire(t, c, other, nil)

	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- c.Close(ctx) }()
	wantErr(t, <-cause, pglock.ErrClosed)
	eventually(t, "release of what Acquire gave", 5*time.Second, func() bool { return !row(t, pool, other).Held })
	renewedAgain(t, pool, name)
	cancel()
	wantErr(t, <-first, context.Canceled)
	renewedAgain(t, pool, name)

	close(finish)
	if err := <-result; err != nil {
		t.Errorf("Do: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if row(t, pool, name).Held {
		t.Error("the lease is held after Close")
	}
}

func TestClose_EndsWaitersWithErrClosed(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, client(t, pool, pglock.Config{}), name, nil)
	c := client(t, pool, pglock.Config{})
	results := make(chan error, 2)
	ctx := context.WithoutCancel(t.Context())
	go func() {
		_, err := c.Acquire(ctx, name, nil)
		results <- err
	}()
	go func() { results <- c.Do(ctx, name, nil, untilCancelled(nil)) }()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-results, pglock.ErrClosed)
	wantErr(t, <-results, pglock.ErrClosed)
}

func TestClose_OneReleaseThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool, stuck := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{RenewEvery: 20 * time.Second})
	acquire(t, c, stuck, nil)
	var others []string
	for range 5 {
		others = append(others, pgtest.Name(t))
		acquire(t, c, others[len(others)-1], nil)
	}
	operator := lockRow(t, pool, stuck)
	done := make(chan error, 1)
	go func() { done <- c.Close(context.WithoutCancel(t.Context())) }()
	for _, name := range others {
		eventually(t, "release", 4*time.Second, func() bool { return !row(t, pool, name).Held })
	}
	commit(t, operator)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if row(t, pool, stuck).Held {
		t.Error("the lease that was stuck is held after Close")
	}
}

// The application's pool is closed or exhausted: the leases are given back over
// the control connection.
func TestClose_ReleasesWithoutTheApplicationsPool(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for what, ruin := range map[string]func(*testing.T, *pgxpool.Pool){
		"closed": func(_ *testing.T, pool *pgxpool.Pool) { pool.Close() },
		"exhausted": func(t *testing.T, pool *pgxpool.Pool) {
			t.Helper()
			conn, err := pool.Acquire(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Release)
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := pgtest.Name(t)
			pool := poolWith(t, pgtest.URL(t), maxConns(1))
			c := client(t, pool, pglock.Config{})
			acquire(t, c, name, nil)
			ruin(t, pool)
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if row(t, direct, name).Held {
				t.Error("the lease is held after Close")
			}
		})
	}
}

func TestClose_LeavesTheCallersPoolsOpen(t *testing.T) {
	t.Parallel()
	pool, control := pgtest.Pool(t), pgtest.Pool(t)
	c := client(t, pool, pglock.Config{Control: control})
	l := acquire(t, c, pgtest.Name(t), nil)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pool.Ping(t.Context()), control.Ping(t.Context())); err != nil {
		t.Error(err)
	}
}

// A network that swallows everything holds up neither the caller of Close nor, once
// it is over, the rest of the client.
func TestClose_InABlackHoleReturnsWithItsCtxAndLeaksNothing(t *testing.T) {
	t.Parallel()
	direct, name := pgtest.Pool(t), pgtest.Name(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 8, setting("application_name", name))
	c := client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: often})
	acquire(t, c, name, nil)
	acquire(t, client(t, direct, pglock.Config{}), name+"2", nil)
	ctx := context.WithoutCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, name+"2", nil)
		waited <- err
	}()
	registered(t, direct, name+"2", 1)
	finish := make(chan struct{})
	working, result := working(t, c, name+"3", finish)
	watched := c.Elector(name, nil).Observe(ctx)

	proxy.SetStall(true)
	bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	began, closed := time.Now(), make(chan error, 1)
	go func() { closed <- c.Close(bounded) }()
	select {
	case err := <-closed:
		wantErr(t, err, context.DeadlineExceeded)
	case <-time.After(10 * time.Second):
		t.Error("Close goes on") // the rest shows whether it ends with the black hole
	}
	if took := time.Since(began); took > 300*time.Millisecond+slack {
		t.Errorf("Close took %s", took)
	}
	wantErr(t, <-working, pglock.ErrClosed)

	proxy.SetStall(false)
	close(finish)
	wantErr(t, <-waited, pglock.ErrClosed) // not before: it may be trying
	if err := c.Close(ctx); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := <-result; err != nil {
		t.Errorf("Do: %v", err)
	}
	for range watched { // until it is closed
	}
	eventually(t, "release", 10*time.Second, func() bool { return !row(t, direct, name).Held })
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections of the application's pool are in use", n)
	}
	pool.Close()
	eventually(t, "the end of its sessions", 10*time.Second, func() bool {
		return value[int](t, direct, `SELECT count(*) FROM pg_stat_activity WHERE application_name = left($1, 63)
			AND (state <> 'idle' OR NOT $2)`, name, pgtest.Pooled()) == 0
	})
}

// A grant that is under way when Close begins is nobody's, and is given back.
func TestClose_LeavesNoGrantThatWasUnderWay(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	c := client(t, pool, pglock.Config{TTL: time.Hour})
	release(t, acquire(t, c, name, nil))
	gate := gateGrants(t, pool)
	result := make(chan error, 1)
	go func() { _, err := c.TryAcquire(t.Context(), name, nil); result <- err }()
	blocked(t, pool, gate.Conn().PgConn().PID())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Close(over) // has begun, and goes on behind
	commit(t, gate)
	wantErr(t, <-result, pglock.ErrClosed)
	if r := row(t, pool, name); r.Held || value[int](t, pool, `SELECT transitions FROM gatepost.leases WHERE name = $1`, name) != 2 {
		t.Errorf("the row is %+v, want it granted and free again", r)
	}
}

// What is still to be given back when it closes wakes who waits for it, like any release.
func TestClose_WakesForWhatIsReleasedLast(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	c, tries := client(t, pool, slowPoll), &tries{}
	held := acquire(t, c, name, nil)
	cfg := slowPoll
	cfg.Tracer = tries
	waiting := granted(t, client(t, pool, cfg), name)
	eventually(t, "its three tries before it sleeps", 10*time.Second, func() bool { return tries.over.Load() >= 3 })

	operator := lockRow(t, pool, name)
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	blocked(t, pool, pgtest.Backend(t, operator))
	cancel()
	wantErr(t, <-released, context.Canceled) // it goes on in the background
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.WithoutCancel(t.Context())) }()
	blocked(t, pool, pgtest.Backend(t, operator))
	commit(t, operator)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	release(t, within(t, 10*time.Second, waiting))
}
