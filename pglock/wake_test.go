package pglock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// waiters are clients that wait for a name, the first one for the longest time,
// and on which nothing but a notification calls for two minutes.
type waiters struct {
	holder *pglock.Lease
	giveUp context.CancelFunc // of the first
	gaveUp <-chan error
	tries  *tries // of the first
	second <-chan *pglock.Lease
}

// tries counts the tries to acquire, as a tracer.
type tries struct{ begun, over atomic.Int64 }

func (n *tries) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	n.begun.Add(1)
	return ctx
}
func (n *tries) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) { n.over.Add(1) }

func twoWaiters(t *testing.T, name string, holder, first, second *pgxpool.Pool) waiters {
	t.Helper()
	w := waiters{holder: acquire(t, client(t, holder, slowPoll), name, nil)}
	gaveUp := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.giveUp, w.gaveUp, w.tries = cancel, gaveUp, &tries{}
	cfg := slowPoll
	cfg.Tracer = w.tries
	c := client(t, first, cfg)
	go func() {
		_, err := c.Acquire(ctx, name, nil)
		gaveUp <- err
	}()
	registered(t, second, name, 1)
	other := &tries{}
	cfg.Tracer = other
	w.second = granted(t, client(t, second, cfg), name)
	registered(t, second, name, 2)
	eventually(t, "two that LISTEN", 10*time.Second, func() bool {
		return value[int](t, second, `SELECT count(*) FROM pg_stat_activity
			WHERE query = 'LISTEN gatepost' AND state = 'idle' AND datname = current_database()`) == 2
	})
	eventually(t, "the tries of the second, which would pass for a wake", 10*time.Second, func() bool { return other.over.Load() >= 3 })
	return w
}

// A row that is kept alive keeps its place among the others.
func TestAcquire_StaysInItsPlaceWhileItWaits(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	waiting := granted(t, client(t, pool, fast), name)
	registered(t, pool, name, 1)
	const of = ` FROM gatepost.waiters WHERE name = $1`
	since, until := value[time.Time](t, pool, `SELECT since`+of, name), value[time.Time](t, pool, `SELECT expires_at`+of, name)
	eventually(t, "its next poll", 10*time.Second, func() bool { return value[time.Time](t, pool, `SELECT expires_at`+of, name).After(until) })
	if now := value[time.Time](t, pool, `SELECT since`+of, name); !now.Equal(since) {
		t.Errorf("it waits since %s, want since %s", now, since)
	}
	release(t, held)
	release(t, within(t, 10*time.Second, waiting))
}

func TestWake_OfOneThatGivesUpWhileItTriesGoesToTheNext(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	narrow := poolWith(t, url, maxConns(1))
	w := twoWaiters(t, name, pgtest.Connect(t, url), narrow, pgtest.Connect(t, url))
	eventually(t, "the tries at first, when registered and when it listens", 10*time.Second, func() bool { return w.tries.over.Load() == 3 })
	conn, err := narrow.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	release(t, w.holder)
	// The wake is used up by a try, which waits for the connection.
	eventually(t, "a try of the first", 10*time.Second, func() bool { return w.tries.begun.Load() == 4 })
	w.giveUp()
	wantErr(t, <-w.gaveUp, context.Canceled)
	release(t, within(t, 10*time.Second, w.second))
}

// The row is deleted while the release waits to move it.
func TestWake_PassesOverARowThatIsDeletedAtThatMoment(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	pool := pgtest.Connect(t, url)
	w := twoWaiters(t, name, pgtest.Connect(t, url), pgtest.Connect(t, url), pool)
	operator := begin(t, pool, pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), `SELECT FROM gatepost.waiters ORDER BY since LIMIT 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		eventually(t, "a wait for the row", 10*time.Second, func() bool {
			return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == n
		})
	}
	w.giveUp()
	wantErr(t, <-w.gaveUp, context.Canceled)
	waiting(1)
	released := make(chan struct{})
	go func() { defer close(released); release(t, w.holder) }()
	waiting(2)
	commit(t, operator)
	soon(t, "release", released)
	release(t, within(t, 10*time.Second, w.second))
}

func TestWake_ThatComesAfterItsQueueIsGoneGoesToTheNext(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	pool, counter := pgtest.Connect(t, url), &counting{}
	counted := poolWith(t, url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter })
	w := twoWaiters(t, name, pgtest.Connect(t, url), pool, counted)
	payload := value[string](t, pool, `SELECT client || ':' || waiter FROM gatepost.waiters ORDER BY since LIMIT 1`)
	w.giveUp()
	wantErr(t, <-w.gaveUp, context.Canceled)
	registered(t, pool, name, 1)
	before := counter.tries.Load()
	exec(t, pool, `SELECT pg_notify('gatepost', $1)`, payload)
	eventually(t, "a try of the other", 10*time.Second, func() bool { return counter.tries.Load() > before })
	release(t, w.holder)
	release(t, within(t, 10*time.Second, w.second))
}

// A client that closes takes its rows along, and with them a wake that it never got.
func TestWake_OfAClientThatClosesGoesToTheNext(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	pool := pgtest.Connect(t, url)
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	closing := client(t, pool, slowPoll)
	gaveUp := make(chan error, 1)
	go func() {
		_, err := closing.Acquire(t.Context(), name, nil)
		gaveUp <- err
	}()
	registered(t, pool, name, 1)
	listening(t, pool)
	exec(t, owner(t, pool), `UPDATE gatepost.waiters SET waiter = 4711`) // it knows no such waiter
	second := &tries{}
	cfg := slowPoll
	cfg.Tracer = second
	next := granted(t, client(t, pool, cfg), name)
	eventually(t, "the tries of the next", 10*time.Second, func() bool { return second.over.Load() == 3 })
	since := value[time.Time](t, pool, `SELECT since FROM gatepost.waiters WHERE waiter = 4711`)
	release(t, held)
	eventually(t, "a wake", 10*time.Second, func() bool {
		return value[bool](t, pool, `SELECT since > $1 FROM gatepost.waiters WHERE waiter = 4711`, since)
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = closing.Close(over) // goes on behind
	if err := closing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-gaveUp, pglock.ErrClosed)
	release(t, within(t, 10*time.Second, next))
}

// What sessions default to doesn't reach the wake.
func TestWake_IsReadCommittedAndReadWrite(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	for _, s := range [][2]string{{"default_transaction_read_only", "on"}, {"default_transaction_isolation", "serializable"}} {
		name := pgtest.Name(t)
		held := acquire(t, client(t, poolWith(t, url, setting(s[0], s[1])), slowPoll), name, nil)
		waiting := granted(t, client(t, pool, slowPoll), name)
		registered(t, pool, name, 1)
		listening(t, pool)
		release(t, held)
		release(t, within(t, 10*time.Second, waiting))
	}
}

// The wake fails, and the release and its connection don't care.
func TestRelease_DoesntFailWithItsWake(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.Database(t), maxConns(1))
	l := acquire(t, client(t, pool, pglock.Config{}), pgtest.Name(t), nil)
	connects := pool.Stat().NewConnsCount()
	exec(t, pool, `INSERT INTO gatepost.waiters SELECT 'x', 1, $1, 0, 'x', now(), now() + interval '1 h'`, l.Name())
	exec(t, pool, `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'`)
	exec(t, owner(t, pool), `CREATE TRIGGER no BEFORE UPDATE ON gatepost.waiters EXECUTE FUNCTION no()`)
	release(t, l)
	if row(t, pool, l.Name()).Held {
		t.Error("it is held")
	}
	if pool.Stat().NewConnsCount() != connects {
		t.Error("the wake's failure cost a connection")
	}
}

// A waiter that has left before it was registered leaves no row behind.
func TestAcquire_ShortWaitsLeaveNoRow(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, slowPoll)
	acquire(t, client(t, pool, slowPoll), name, nil)
	for range 50 {
		_, err := c.Acquire(t.Context(), name, &pglock.AcquireOptions{Wait: time.Nanosecond})
		wantErr(t, err, pglock.ErrHeld)
	}
	granted(t, c, name) // when it is registered, all that came before it is done
	eventually(t, "its registration", 10*time.Second, func() bool {
		return value[bool](t, pool, `SELECT coalesce(max(waiter) = 51, false) FROM gatepost.waiters WHERE name = $1`, name)
	})
	registered(t, pool, name, 1)
}

// panics panics in the first try that follows a wait.
type panics struct{ tries int }

func (p *panics) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	if p.tries++; p.tries == 2 {
		panic("of the tracer")
	}
	return ctx
}
func (*panics) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

func TestAcquire_PanicDoesntHoldUpTheQueue(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	cfg := slowPoll
	cfg.Tracer = &panics{}
	c := client(t, pool, cfg)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = c.Acquire(t.Context(), name, nil)
	}()
	waiting := granted(t, c, name)
	registered(t, pool, name, 1)
	listening(t, pool)
	release(t, held)
	release(t, within(t, 10*time.Second, waiting))
}

// As a restart of the server does: every connection is gone.
func TestAcquire_WaitsOnOverTheLossOfItsConnections(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	admin, pool := pgtest.Connect(t, pgtest.Direct(t, url)), pgtest.Connect(t, url)
	held := acquire(t, client(t, admin, slowPoll), name, nil)
	cfg := slowPoll
	cfg.PollInterval = 50 * time.Millisecond
	waiting := granted(t, client(t, pool, cfg), name)
	registered(t, admin, name, 1)
	for range 20 {
		exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	}
	if err := held.Renew(t.Context()); err != nil {
		t.Errorf("the holder: %v", err)
	}
	release(t, held)
	release(t, within(t, 20*time.Second, waiting))
}

// The row of a queue could not be written: that is the error of the waiter whose
// turn it was, and not of those behind it.
func TestAcquire_FailedRegistrationFailsOneWaiter(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	pool := pgtest.Connect(t, url)
	held := acquire(t, client(t, pool, slowPoll), name, nil)
	queue := &queued{}
	cfg := queue.slowPoll()
	cfg.PollInterval = 50 * time.Millisecond
	c := client(t, pgtest.Connect(t, url), cfg)

	operator := begin(t, owner(t, pool), pgx.TxOptions{})
	if _, err := operator.Exec(t.Context(), `ALTER TABLE gatepost.waiters RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), name, nil)
		failed <- err
	}()
	blocked(t, pool, operator.Conn().PgConn().PID())
	second := granted(t, c, name)
	queue.reaches(t, 2)
	commit(t, operator)
	wantErr(t, <-failed, pglock.ErrNotMigrated)
	exec(t, owner(t, pool), `ALTER TABLE gatepost.elsewhere RENAME TO waiters`)
	release(t, held)
	release(t, within(t, 20*time.Second, second))
}

// The row of a client that died stays for a while, and its turn would have come first.
func TestWake_PassesOverAClientThatDied(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
	tries := &ended{tries: map[string]int{}}
	c := client(t, pool, pglock.Config{TTL: slowPoll.TTL, PollInterval: slowPoll.PollInterval, Tracer: tries})
	holder := acquire(t, client(t, pool, slowPoll), name, nil)
	waiting := granted(t, c, name)
	eventually(t, "its three tries before it sleeps", 10*time.Second, func() bool { return tries.of(name) >= 3 })
	exec(t, pool, `INSERT INTO gatepost.waiters (client, waiter, name, slot, holder, since, expires_at)
		VALUES ('dead', 1, $1, 0, 'dead', '-infinity', clock_timestamp() - interval '1 s')`, name)
	release(t, holder)
	release(t, within(t, 10*time.Second, waiting))
}
