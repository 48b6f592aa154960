package pglock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestTryAcquire_SecondCallerLearnsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	first := client(t, pool, pglock.Config{Holder: "first", TTL: 10 * time.Second})
	second := client(t, pool, pglock.Config{Holder: "second"})

	l := acquire(t, first, name, nil)
	_, err := second.TryAcquire(t.Context(), name, nil)

	held, ok := errors.AsType[*pglock.HeldError](err)
	if !ok || !errors.Is(err, pglock.ErrHeld) {
		t.Fatalf("error is %v, want a *HeldError", err)
	}
	if held.Holder != "first" || held.Token != l.Token() || held.Fenced {
		t.Errorf("held = %+v, want first with token %d", held, l.Token())
	}
	if held.RetryAfter <= 0 || held.RetryAfter > 10*time.Second {
		t.Errorf("RetryAfter = %s, want up to 10 s", held.RetryAfter)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, second, name, nil); next.Token() <= l.Token() {
		t.Errorf("token %d after %d, want a higher one", next.Token(), l.Token())
	}
}

func TestTryAcquire_HasOneHolderWhateverTheDefaults(t *testing.T) {
	t.Parallel()
	for _, s := range []struct{ name, value string }{
		{"default_transaction_isolation", "read uncommitted"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_isolation", "repeatable read"},
		{"default_transaction_isolation", "serializable"},
		{"default_transaction_read_only", "on"},
	} {
		t.Run(s.name+"="+s.value, func(t *testing.T) {
			t.Parallel()
			name := pgtest.Name(t)
			c := client(t, poolWith(t, pgtest.URL(t), setting(s.name, s.value), maxConns(8)), pglock.Config{})
			contend(t, c, name, 64)
		})
	}
}

// contend lets n goroutines take turns at a name and checks S1: one holder at a
// time, and tokens that rise in the order of the grants.
func contend(t *testing.T, c *pglock.Client, name string, n int) {
	t.Helper()
	var holders, last atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			l, err := c.TryAcquire(t.Context(), name, nil)
			for errors.Is(err, pglock.ErrHeld) {
				l, err = c.TryAcquire(t.Context(), name, nil)
			}
			if err != nil {
				t.Errorf("TryAcquire: %v, want busy or granted", err)
				return
			}
			if holders.Add(1) != 1 {
				t.Error("two holders at a time")
			}
			if before := last.Swap(l.Token()); before >= l.Token() {
				t.Errorf("token %d after %d", l.Token(), before)
			}
			holders.Add(-1)
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	all.Wait()
}

func TestTryAcquire_FirstInsertHasOneWinner(t *testing.T) {
	t.Parallel()
	c := client(t, poolWith(t, pgtest.URL(t), maxConns(16)), pglock.Config{})
	for range 5 {
		name := pgtest.Name(t)
		var grants atomic.Int64
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				switch _, err := c.TryAcquire(t.Context(), name, nil); {
				case err == nil:
					grants.Add(1)
				case !errors.Is(err, pglock.ErrHeld):
					t.Errorf("TryAcquire: %v, want busy or granted", err)
				}
			})
		}
		all.Wait()
		if grants.Load() != 1 {
			t.Errorf("%d grants, want 1", grants.Load())
		}
	}
}

func TestTryAcquire_TokensRise(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	micros := func() int64 {
		return value[int64](t, pool, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	}
	var last *pglock.Lease
	next := func(after string) {
		t.Helper()
		from := micros()
		l := acquire(t, c, name, nil)
		if l.Token() < from {
			t.Errorf("after %s: token %d, want at least the clock's %d", after, l.Token(), from)
		}
		if last != nil && l.Token() <= last.Token() {
			t.Errorf("after %s: token %d after %d", after, l.Token(), last.Token())
		}
		last = l
	}
	next("nothing")
	if err := last.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next("a release")
	expire(t, pool, name)
	next("an expiry")
	if got := row(t, pool, name).Transitions; got != 3 {
		t.Errorf("transitions = %d, want 3", got)
	}
	exec(t, pool, `DELETE FROM gatepost.leases WHERE name = $1`, name)
	next("a DELETE")

	// A clock that is far behind the last token: a restored backup, a new server.
	ahead := last.Token() + 1_000_000_000_000
	exec(t, pool, `UPDATE gatepost.leases SET token = $2, nonce = NULL, holder = NULL WHERE name = $1`, name, ahead)
	if l := acquire(t, c, name, nil); l.Token() != ahead+1 {
		t.Errorf("token %d, want %d", l.Token(), ahead+1)
	}
}

func TestTryAcquire_BusyWritesNothingAndLocksNothing(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, client(t, pool, pglock.Config{}), name, nil)

	tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if _, err := tx.Exec(t.Context(), lockdb.TransactionSettings); err != nil {
		t.Fatal(err)
	}
	got, err := lockdb.New(tx).LeaseAcquire(t.Context(), lockdb.LeaseAcquireParams{
		Name: name, Nonce: "00000000-0000-4000-8000-000000000000", Holder: "busy", TtlUs: 1e6,
	})
	if err != nil || got.Token != 0 || !got.Held {
		t.Fatalf("%+v, %v; want busy", got, err)
	}
	var xid *string // no transaction id: no row lock, no write, no WAL
	if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id_if_assigned()::text`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	if xid != nil {
		t.Errorf("a busy try has transaction id %s, want none", *xid)
	}
	exec(t, pool, `SELECT FROM gatepost.leases WHERE name = $1 FOR UPDATE NOWAIT`, name)
}

func TestTryAcquire_WaiterNeverShortensTheHolder(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	acquire(t, c, name, nil)
	before := row(t, pool, name)
	_, err := c.TryAcquire(t.Context(), name, &pglock.AcquireOptions{TTL: time.Millisecond})
	wantErr(t, err, pglock.ErrHeld)
	if after := row(t, pool, name); !after.Expires.Equal(before.Expires) {
		t.Errorf("expires_at went from %s to %s", before.Expires, after.Expires)
	}
}

func TestTryAcquire_StoresTheTTLUnrounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{})
	for _, ttl := range []time.Duration{time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond, 168 * time.Hour} {
		name := pgtest.Name(t)
		acquire(t, c, name, &pglock.AcquireOptions{TTL: ttl})
		if got := row(t, pool, name).TTL; got != ttl {
			t.Errorf("stored %s, want %s", got, ttl)
		}
	}
}

func TestTryAcquire_FreshClientTakesALapsedLeaseAtOnce(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, client(t, pool, pglock.Config{}), name, nil)
	expire(t, pool, name)
	acquire(t, client(t, pool, pglock.Config{}), name, nil)
}

// An acquisition waits for no row lock, so the only clock that could be older
// than a wait is that of a first INSERT, which waits for another first INSERT.
func TestTryAcquire_FirstInsertThatWaitedHasItsWholeTTL(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const ttl, margin = 50 * time.Millisecond, 5 * time.Millisecond
	c := client(t, pool, pglock.Config{TTL: ttl})
	acquire(t, c, pgtest.Name(t), nil) // warms the connection up

	for range 20 { // the wait is too short now and then
		other, name := begin(t, pool, pgx.TxOptions{}), pgtest.Name(t)
		insertFree(t, other, name)
		type result struct {
			lease *pglock.Lease
			err   error
		}
		done := make(chan result, 1)
		go func() {
			l, err := c.TryAcquire(context.WithoutCancel(t.Context()), name, nil)
			done <- result{l, err}
		}()
		eventually(t, "a wait, or its end", 10*time.Second, func() bool {
			return isBlocked(t, pool, other.Conn().PgConn().PID()) || len(done) > 0
		})
		ended := waitForClock(t, pool, 40*time.Millisecond)
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if errors.Is(got.err, pglock.ErrHeld) { // it gave up before the rollback
			continue
		}
		if got.err != nil {
			t.Fatal(got.err)
		}
		if at := row(t, pool, name).Acquired; at.Before(ended.Add(-margin)) {
			t.Errorf("granted by a clock that was read %s before the end of the wait", ended.Sub(at))
		}
		return
	}
	t.Error("never granted after a wait")
}

func TestTryAcquire_IsBusyWhileAnotherFirstInsertIsOpen(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	insertFree(t, begin(t, pool, pgx.TxOptions{}), name)
	_, err := client(t, pool, pglock.Config{}).TryAcquire(t.Context(), name, nil)
	wantErr(t, err, pglock.ErrHeld)
	if !strings.Contains(err.Error(), "being taken") {
		t.Errorf("error is %q, want it to say that the lease is being taken", err)
	}
}

func insertFree(t *testing.T, tx pgx.Tx, name string) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `INSERT INTO gatepost.leases (name, token, acquired_at, renewed_at, expires_at, transitions)
		VALUES ($1, 1, now(), now(), now(), 1)`, name)
	if err != nil {
		t.Fatal(err)
	}
}

// waitForClock waits until the database's clock has moved by d, and reads it.
func waitForClock(t *testing.T, pool *pgxpool.Pool, d time.Duration) time.Time {
	t.Helper()
	clock := func() time.Time { return value[time.Time](t, pool, `SELECT clock_timestamp()`) }
	from := clock()
	eventually(t, "the clock", 10*time.Second, func() bool { return clock().Sub(from) >= d })
	return clock()
}

// S1 and rules A5 and A6, as the rows' own triggers see them.
func TestAcquireAndRenew_AreDurableAndReadCommitted(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	admin := pgtest.Connect(t, url)
	exec(t, admin, `CREATE TABLE seen (what text)`)
	exec(t, admin, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.nonce IS NOT NULL THEN
			INSERT INTO public.seen VALUES (concat_ws(',', TG_OP, current_setting('synchronous_commit'), current_setting('transaction_isolation')));
		END IF;
		RETURN NEW; END $$`)
	exec(t, admin, `CREATE TRIGGER see BEFORE INSERT OR UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION see()`)

	for set, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		exec(t, admin, `TRUNCATE seen`)
		pool := poolWith(t, url, setting("synchronous_commit", set), setting("default_transaction_isolation", "serializable"))
		c := client(t, pool, pglock.Config{})
		name := pgtest.Name(t)
		first := acquire(t, c, name, nil) // INSERT
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, c, name, nil) // UPDATE
		if err := second.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := value[string](t, admin, `SELECT string_agg(what, ' ' ORDER BY what) FROM seen`)
		tail := "," + want + ",read committed"
		if got != "INSERT"+tail+" UPDATE"+tail+" UPDATE"+tail {
			t.Errorf("with synchronous_commit=%s: %s", set, got)
		}
	}
}

func TestAcquire_TakesOverWhenTheLeaseLapses(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{PollInterval: 10 * time.Millisecond})
	old := acquire(t, c, name, nil)
	got := make(chan *pglock.Lease, 1)
	go func() {
		l, err := c.Acquire(context.WithoutCancel(t.Context()), name, nil)
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		got <- l
	}()
	expire(t, pool, name)
	if l := <-got; l != nil && l.Token() <= old.Token() {
		t.Errorf("token %d after %d", l.Token(), old.Token())
	}
}

func TestAcquire_CtxThatEndsMatchesHeldAndTheCtx(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{Holder: "the first"})
	acquire(t, c, name, nil)
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	_, err := c.Acquire(ctx, name, nil)
	for _, want := range []error{pglock.ErrHeld, context.DeadlineExceeded, why} {
		wantErr(t, err, want)
	}
	if held, ok := errors.AsType[*pglock.HeldError](err); !ok || held.Holder != "the first" {
		t.Errorf("error is %v, want the *HeldError in it", err)
	}
}

func TestAcquire_AfterCloseIsErrClosed(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.TryAcquire(t.Context(), name, nil)
	wantErr(t, err, pglock.ErrClosed)
	_, err = c.Acquire(t.Context(), name, nil)
	wantErr(t, err, pglock.ErrClosed)
	wantErr(t, c.Do(t.Context(), name, nil, func(context.Context, *pglock.Lease) error { return nil }), pglock.ErrClosed)
}
