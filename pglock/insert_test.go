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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

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

// An acquisition waits for no row lock, so the only clock that could be older
// than a wait is that of a first INSERT, which waits for another first INSERT.
// Two first INSERTs may read the same microsecond, and so make the same token:
// here all of them do.
func TestTryAcquire_FirstInsertsWithTheSameTokenHaveOneWinner(t *testing.T) {
	t.Parallel()
	const token = "(extract(epoch FROM n.at) * 1000000)::bigint"
	if strings.Count(lockdb.LeaseInsert, token) != 1 {
		t.Fatal("the statement has changed: this test proves nothing")
	}
	sql := strings.Replace(lockdb.LeaseInsert, token, "1", 1)
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		cfg.MaxConns = 8
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed" // as the client makes sure
	})
	for range 100 {
		name := pgtest.Name(t)
		var grants atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				got, err := lockdb.New(replaced{pool, sql}).LeaseInsert(t.Context(), lockdb.LeaseInsertParams{
					Name: name, Nonce: otherNonce, Holder: "x", TtlUs: 60e6,
				})
				refused, _ := errors.AsType[*pgconn.PgError](err)
				switch {
				case err == nil && got.Token == 1:
					grants.Add(1)
				case errors.Is(err, pgx.ErrNoRows):
				case refused != nil && refused.Code == "55P03": // the winner took longer than it is waited for
				default:
					t.Errorf("LeaseInsert: %+v, %v", got, err)
				}
			})
		}
		all.Wait()
		if grants.Load() != 1 {
			t.Errorf("%d grants, want 1", grants.Load())
		}
		if t.Failed() {
			return
		}
	}
}

// replaced sends another statement than it is asked to.
type replaced struct {
	pglock.DBTX
	sql string
}

func (r replaced) QueryRow(ctx context.Context, _ string, args ...any) pgx.Row {
	return r.DBTX.QueryRow(ctx, r.sql, args...)
}

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
	soon, cancel := context.WithTimeout(t.Context(), 8*time.Second) // it waits for a tenth of a second
	defer cancel()
	_, err := client(t, pool, pglock.Config{}).TryAcquire(soon, name, nil)
	wantErr(t, err, pglock.ErrHeld)
	if soon.Err() != nil {
		t.Error("it waited for the other one")
	}
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
