package pglock_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
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
	_, err := lockdb.New(tx).LeaseTake(t.Context(), lockdb.LeaseTakeParams{
		Name: name, Nonce: "00000000-0000-4000-8000-000000000000", Holder: "busy", TtlUs: 1e6,
	})
	got, lookErr := lockdb.New(tx).LeaseLook(t.Context(), lockdb.LeaseLookParams{Name: name, Holder: "busy"})
	if !errors.Is(err, pgx.ErrNoRows) || lookErr != nil || !got.Held {
		t.Fatalf("%v, %+v, %v; want busy", err, got, lookErr)
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

// However often it is tried, and however short before: the holder has the whole of its TTL.
func TestTryAcquire_TakesNothingBeforeItExpires(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, asleep(t, pool), name, nil)
	exec(t, pool, `UPDATE gatepost.leases SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + interval '700 ms' WHERE name = $1`, name)
	expires := row(t, pool, name).Expires
	c := client(t, pool, pglock.Config{})
	eventually(t, "the takeover", 20*time.Second, func() bool {
		_, err := c.TryAcquire(t.Context(), name, nil)
		if err != nil {
			wantErr(t, err, pglock.ErrHeld)
		}
		return err == nil
	})
	if got := row(t, pool, name).Acquired; got.Before(expires) {
		t.Errorf("taken over %s before it expired", expires.Sub(got))
	}
}

func TestTryAcquire_DataGoWithTheirHolder(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	acquire(t, asleep(t, pool), name, &pglock.AcquireOptions{Data: []byte(`{"mine": 1}`)})
	expire(t, pool, name)
	acquire(t, asleep(t, pool), name, nil)
	if n := value[int](t, pool, `SELECT count(data) FROM gatepost.leases WHERE name = $1`, name); n != 0 {
		t.Error("the next holder has the data of the last")
	}
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

func TestRenew_StoresTheTTLUnrounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{TTL: time.Minute})
	for _, ttl := range []time.Duration{59*time.Second + 999*time.Millisecond, time.Minute + 1500*time.Microsecond} {
		l := acquire(t, c, pgtest.Name(t), &pglock.AcquireOptions{TTL: ttl})
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := row(t, pool, l.Name()).TTL; got != ttl {
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
