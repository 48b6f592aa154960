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
		return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = 'LISTEN gatepost' AND state = 'idle')`)
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
	counter := &counting{}
	pool := poolWith(t, url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter })
	first, second := client(t, pool, slowPoll), client(t, pool, slowPoll)
	held := acquire(t, first, name, nil)
	order := make(chan int, 5)
	var waiters sync.WaitGroup
	for i := range cap(order) {
		before := counter.busy.Load()
		waiters.Go(func() {
			l, err := second.Acquire(t.Context(), name, nil)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			order <- i
			release(t, l)
		})
		// The first one tries twice, the others once, before they queue.
		eventually(t, "its first try", 10*time.Second, func() bool {
			return counter.busy.Load() >= before+1+int64(min(i, 1)^1)
		})
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

// counting counts the tries to acquire, and those that were told who has it.
type counting struct{ tries, busy atomic.Int64 }

type countKey struct{}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(data.SQL, "name: LeaseTake"):
		return context.WithValue(ctx, countKey{}, &c.tries)
	case strings.Contains(data.SQL, "name: LeaseLook"):
		return context.WithValue(ctx, countKey{}, &c.busy)
	default:
		return ctx
	}
}

func (c *counting) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if n, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		n.Add(1)
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
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	for i := range clients {
		c := client(t, pool, slowPoll)
		for range each {
			waiters.Go(func() {
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
			})
		}
	}
	registered(t, pool, name, clients)
	eventually(t, "1,000 first tries", 30*time.Second, func() bool { return counter.tries.Load() >= clients*each })
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
	listener, err := pgx.Connect(t.Context(), pool.Config().ConnString())
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
