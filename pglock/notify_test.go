package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// slowPoll leaves notifications as the only way to learn of a release in time.
var slowPoll = pglock.Config{TTL: 2 * time.Minute, PollInterval: 2 * time.Minute}

// granted acquires in the background.
func granted(t *testing.T, c *pglock.Client, name string) <-chan *pglock.Lease {
	t.Helper()
	leases := make(chan *pglock.Lease, 1)
	go func() {
		l, err := c.Acquire(t.Context(), name, nil)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("Acquire: %v", err)
		}
		leases <- l
	}()
	return leases
}

// within fails unless the lease comes.
func within(t *testing.T, d time.Duration, leases <-chan *pglock.Lease) *pglock.Lease {
	t.Helper()
	select {
	case l := <-leases:
		return l
	case <-time.After(d):
		t.Fatalf("not granted within %s", d)
		return nil
	}
}

// registered waits until so many queues wait for a name.
func registered(t *testing.T, pool *pgxpool.Pool, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d registered queues", n), 10*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(*) FROM gatepost.waiters WHERE name = $1`, name) == n
	})
}

func release(t *testing.T, l *pglock.Lease) {
	t.Helper()
	if err := l.Release(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestAcquire_IsWokenByTheRelease(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	first, second := client(t, pool, slowPoll), client(t, pool, slowPoll)
	held := acquire(t, first, name, nil)
	waiting := granted(t, second, name)
	registered(t, pool, name, 1)
	listening(t, pool)
	release(t, held)
	release(t, within(t, 5*time.Second, waiting))
	registered(t, pool, name, 0)
}

// listening waits for somebody's LISTEN; before it, a wake comes with it.
func listening(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	eventually(t, "a LISTEN", 10*time.Second, func() bool {
		return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = 'LISTEN gatepost' AND state = 'idle' AND datname = current_database())`)
	})
}

func TestAcquire_SurvivesTheLossOfItsListener(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	name := pgtest.Name(t)
	first, second := client(t, pool, slowPoll), client(t, pool, slowPoll)
	held := acquire(t, first, name, nil)
	waiting := granted(t, second, name)
	registered(t, pool, name, 1)
	listening(t, pool)
	exec(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN gatepost' AND datname = current_database()`)
	release(t, held)
	release(t, within(t, 10*time.Second, waiting))
}

func TestAcquire_PollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	pool, name, counter := pgtest.Pool(t), pgtest.Name(t), &counting{}
	cfg := pglock.Config{TTL: time.Minute, PollInterval: 50 * time.Millisecond, DisableNotify: true}
	counted := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter })
	first, second := client(t, pool, cfg), client(t, counted, cfg)
	held := acquire(t, first, name, nil)
	waiting := granted(t, second, name)
	eventually(t, "the two tries before it sleeps", 10*time.Second, func() bool { return counter.tries.Load() >= 2 })
	if n := value[int](t, pool, `SELECT count(*) FROM gatepost.waiters WHERE name = $1`, name); n != 0 {
		t.Errorf("%d rows of a client that can't be woken", n)
	}
	release(t, held)
	release(t, within(t, 5*time.Second, waiting))
}

func TestAcquire_ServesOneClientsWaitersInTheirOrder(t *testing.T) {
	t.Parallel()
	url, name := pgtest.URL(t), pgtest.Name(t)
	pool := pgtest.Connect(t, url)
	queue := &queued{}
	first, second := client(t, pool, slowPoll), client(t, pool, queue.slowPoll())
	held := acquire(t, first, name, nil)
	order := make(chan int, 5)
	var waiters sync.WaitGroup
	for i := range cap(order) {
		waiters.Go(func() {
			l, err := second.Acquire(t.Context(), name, nil)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			order <- i
			release(t, l)
		})
		queue.reaches(t, i+1)
		registered(t, pool, name, 1)
	}
	release(t, held)
	waiters.Wait()
	for want := range cap(order) {
		if got := <-order; got != want {
			t.Errorf("waiter %d came in place %d", got, want)
		}
	}
}

// queued counts the waiters that stand in a queue, as a tracer.
type queued struct{ waiters atomic.Int64 }

func (q *queued) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}
func (*queued) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

func (q *queued) TraceWaitStart(ctx context.Context, _ pglock.TraceWaitStartData) context.Context {
	q.waiters.Add(1)
	return ctx
}
func (*queued) TraceWaitEnd(context.Context, pglock.TraceWaitEndData) {}

func (q *queued) slowPoll() pglock.Config {
	cfg := slowPoll
	cfg.Tracer = q
	return cfg
}

func (q *queued) reaches(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the queue", 30*time.Second, func() bool { return q.waiters.Load() >= int64(n) })
}

// counting counts the tries to acquire.
type counting struct{ tries, wakes atomic.Int64 }

func (c *counting) count(sql string) {
	switch {
	case strings.Contains(sql, "name: LeaseTake"):
		c.tries.Add(1)
	case strings.Contains(sql, "name: WaiterWake"):
		c.wakes.Add(1)
	}
}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.count(data.SQL)
	return ctx
}

// Where sessions don't begin READ COMMITTED, a try is in a batch with its BEGIN.
func (c *counting) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.count(data.SQL)
}

func (*counting) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*counting) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestSpread_GrowsWithTheWaiters(t *testing.T) {
	t.Parallel()
	for clients, want := range map[int64]time.Duration{0: 4, 1: 4, 10: 40, 1000: 1000} {
		if got := pglock.Spread(clients, time.Second); got != want*time.Millisecond {
			t.Errorf("%d clients come back over %s, want %s", clients, got, want*time.Millisecond)
		}
	}
}

func TestNextLook_ComesSoonAndThenEach20ms(t *testing.T) {
	t.Parallel()
	var pause time.Duration
	for _, want := range []time.Duration{3, 6, 12, 20, 20} {
		if pause = pglock.NextLook(pause); pause != want*time.Millisecond {
			t.Errorf("a pause of %s, want %s", pause, want*time.Millisecond)
		}
	}
}

// Four clients with 250 waiters each, all for one name.
func TestAcquire_ThousandWaitersDontStampede(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	counter := &counting{}
	pool := poolWith(t, url, func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.ConnConfig.Tracer = 16, counter })
	const clients, each = 4, 250
	var waiters sync.WaitGroup
	var served [clients]atomic.Int32
	var together atomic.Int32
	queue := &queued{}
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	wait := func(i int, c *pglock.Client) {
		l, err := c.Acquire(t.Context(), name, nil)
		if err != nil {
			t.Errorf("Acquire: %v", err)
			return
		}
		if together.Add(1) != 1 {
			t.Error("two hold it at once")
		}
		served[i].Add(1)
		together.Add(-1)
		release(t, l)
	}
	var all [clients]*pglock.Client
	for i := range all {
		all[i] = client(t, pool, queue.slowPoll())
		waiters.Go(func() { wait(i, all[i]) })
	}
	queue.reaches(t, clients)
	for i, c := range all {
		for range each - 1 {
			waiters.Go(func() { wait(i, c) })
		}
	}
	registered(t, pool, name, clients)
	queue.reaches(t, clients*each)
	if tries := counter.tries.Load(); tries > 5*clients { // one of them learns the sessions' isolation
		t.Errorf("%d tries of waiters that stand behind others", tries)
	}
	listening(t, pool)
	before := counter.tries.Load()
	release(t, held)
	waiters.Wait()
	if tries := counter.tries.Load() - before; tries > 3*clients*each {
		t.Errorf("%d tries for %d hand-offs", tries, clients*each)
	}
}

func TestAcquire_ThousandNamesAtOnce(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	cfg := pglock.Config{TTL: time.Minute}
	holder, c := client(t, pool, cfg), client(t, pool, cfg)
	const names = 1000
	var held [names]*pglock.Lease
	for i := range names {
		held[i] = acquire(t, holder, fmt.Sprint(name, i), nil)
	}
	var waiters sync.WaitGroup
	for i := range names {
		waiters.Go(func() {
			l, err := c.Acquire(t.Context(), fmt.Sprint(name, i), nil)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			release(t, l)
		})
	}
	eventually(t, "1,000 registered queues", 30*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(*) FROM gatepost.waiters`) == names
	})
	for _, l := range held {
		release(t, l)
	}
	waiters.Wait()
	eventually(t, "no queue", 10*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(*) FROM gatepost.waiters`) == 0
	})
}

func TestRelease_NotifiesOnlyWhenSomebodyWaits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{})
	listener, err := pgx.Connect(t.Context(), pgtest.Direct(t, pool.Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.WithoutCancel(t.Context()))
	if _, err := listener.Exec(t.Context(), "LISTEN gatepost"); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, c, pgtest.Name(t), nil))
	exec(t, pool, `NOTIFY gatepost, 'marker'`)
	n, err := listener.WaitForNotification(t.Context())
	if err != nil || n.Payload != "marker" {
		t.Errorf("the first notification is %v (%v), want the test's own", n, err)
	}
}

func TestAcquire_LeavesNoRowWhenItGivesUp(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, slowPoll)
	acquire(t, client(t, pool, slowPoll), name, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, name, nil)
		failed <- err
	}()
	registered(t, pool, name, 1)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, pglock.ErrHeld) {
		t.Errorf("error is %v", err)
	}
	registered(t, pool, name, 0)
}
