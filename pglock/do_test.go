package pglock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// untilCancelled is work that stops when it is told to, and returns err.
func untilCancelled(err error) func(context.Context, *pglock.Lease) error {
	return func(ctx context.Context, _ *pglock.Lease) error {
		<-ctx.Done()
		return err
	}
}

func TestDo_ReleasesAfterTheWork(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	want := errors.New("of the work")
	err := c.Do(t.Context(), name, nil, func(ctx context.Context, l *pglock.Lease) error {
		if r := row(t, pool, name); !r.Held || r.Token != l.Token() || ctx.Err() != nil {
			t.Errorf("row = %+v, ctx = %v", r, ctx.Err())
		}
		return want
	})
	if err != want { //nolint:errorlint // it comes back as it is
		t.Errorf("Do = %v, want the work's own error", err)
	}
	if row(t, pool, name).Held {
		t.Error("the lease is held after Do")
	}
}

func TestDo_LossCancelsTheWorkWithItsReason(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{TTL: 30 * time.Second, RenewEvery: 20 * time.Millisecond})
	for reason, change := range map[error]string{
		pglock.ErrSuperseded: `UPDATE gatepost.leases SET token = token + 1, nonce = gen_random_uuid() WHERE name = $1`,
		pglock.ErrExpired:    `UPDATE gatepost.leases SET renewed_at = now() - interval '2 s', expires_at = now() - interval '1 s' WHERE name = $1`,
	} {
		t.Run(reason.Error(), func(t *testing.T) {
			name := pgtest.Name(t)
			work := errors.New("of the work")
			for _, returned := range []error{nil, work} {
				err := c.Do(t.Context(), name, nil, func(ctx context.Context, l *pglock.Lease) error {
					exec(t, pool, change, name)
					soon(t, "cancellation", ctx.Done())
					if cause := context.Cause(ctx); !errors.Is(cause, reason) {
						t.Errorf("cause = %v, want %v", cause, reason)
					}
					return returned
				})
				wantErr(t, err, reason)
				wantErr(t, err, pglock.ErrLost)
				if returned != nil {
					wantErr(t, err, work)
				}
				exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
			}
		})
	}
}

// A release by an operator, told by the fence, is a loss also when the work says
// that all went well.
func TestDo_ReleaseByAnOperatorIsALoss(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	err := c.Do(t.Context(), name, nil, func(ctx context.Context, l *pglock.Lease) error {
		exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
		wantErr(t, l.InTx(ctx, nothing), pglock.ErrFenced)
		wantErr(t, l.Err(), pglock.ErrSuperseded)
		return nil
	})
	wantErr(t, err, pglock.ErrSuperseded)
}

func TestDo_KeepsTheLeaseUntilTheWorkReturned(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{TTL: long, RenewEvery: often})
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Do(ctx, name, nil, func(ctx context.Context, l *pglock.Lease) error {
		cancel()
		<-ctx.Done() // and goes on all the same
		renewedAgain(t, pool, name)
		_, err := c.TryAcquire(t.Context(), name, nil)
		wantErr(t, err, pglock.ErrHeld)
		return l.Err()
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
	if row(t, pool, name).Held {
		t.Error("the lease is held after Do")
	}
}

func TestDo_PanicReleasesAndGoesOn(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	var lease *pglock.Lease
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v, want the value unchanged", got)
			}
		}()
		_ = c.Do(t.Context(), name, nil, func(_ context.Context, l *pglock.Lease) error {
			lease = l
			panic("boom")
		})
	}()
	wantErr(t, lease.Err(), pglock.ErrReleased)
	acquire(t, c, name, nil)
}

func TestDo_WorkMayReleaseByItself(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	err := client(t, pool, pglock.Config{}).Do(t.Context(), name, nil, func(ctx context.Context, l *pglock.Lease) error {
		err := l.Release(ctx)
		if cause := context.Cause(ctx); !errors.Is(cause, pglock.ErrReleased) {
			t.Errorf("the work's context ended with %v, want ErrReleased", cause)
		}
		return err
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
}

// Whichever statement it takes: the second one's sessions don't begin READ COMMITTED.
func TestRelease_LeavesNothingOfTheHolder(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read"} {
		pool, name := poolWith(t, pgtest.URL(t), setting("default_transaction_isolation", level)), pgtest.Name(t)
		c := acquainted(t, pool, pglock.Config{})
		l := acquire(t, c, name, &pglock.AcquireOptions{Data: []byte(`{"a": 1}`)})
		release(t, l)
		info, err := c.Get(t.Context(), name)
		if err != nil || info.Held || info.Holder != "" || info.Data != nil || info.Token != l.Token() || info.Transitions != 1 {
			t.Errorf("%s: %+v, %v; want the token and no more", level, info, err)
		}
	}
}

func TestRelease_Twice(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	l := acquire(t, c, name, nil)
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "Done", l.Done())
	next := acquire(t, c, name, nil)
	wantErr(t, l.Release(t.Context()), pglock.ErrReleased)
	wantErr(t, l.Renew(t.Context()), pglock.ErrReleased)
	if r := row(t, pool, name); !r.Held || r.Token != next.Token() {
		t.Error("a second release freed another's lease")
	}
}

func TestRelease_OfALeaseThatAnotherHasFreesNothing(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{RenewEvery: 20 * time.Second})
	old := acquire(t, c, name, nil)
	expire(t, pool, name)
	now := acquire(t, c, name, nil)
	wantErr(t, old.Release(t.Context()), pglock.ErrSuperseded)
	if r := row(t, pool, name); !r.Held || r.Token != now.Token() {
		t.Error("the stale holder freed another's lease")
	}
	// The same token with another nonce: a row that was deleted and made again.
	exec(t, pool, `UPDATE gatepost.leases SET nonce = gen_random_uuid() WHERE name = $1`, name)
	wantErr(t, now.Release(t.Context()), pglock.ErrSuperseded)
	if !row(t, pool, name).Held {
		t.Error("a release by the token alone freed another's lease")
	}
}

func TestRelease_OfALapsedLeaseFreesTheRow(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{}), name, nil)
	expire(t, pool, name)
	wantErr(t, l.Release(t.Context()), pglock.ErrExpired)
	r := row(t, pool, name)
	if r.Held || r.Token != l.Token() {
		t.Errorf("row = %+v, want it to be free and to keep its token", r)
	}
}

// All of the application's connections are in use, so it is the control pool that is asked.
// It has answered, and is not to blame for what it said: nothing is repeated or replaced.
func TestRelease_OfALapsedLeaseOverTheControlPool(t *testing.T) {
	t.Parallel()
	direct, name := pgtest.Pool(t), pgtest.Name(t)
	var connects atomic.Int64
	pool := poolWith(t, pgtest.URL(t), maxConns(1), func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { connects.Add(1); return nil }
	})
	c := client(t, pool, pglock.Config{TTL: time.Hour})
	l := acquire(t, c, name, nil)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	expire(t, direct, name)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := connects.Load()
	err = l.Release(t.Context())
	conn.Release()
	wantErr(t, err, pglock.ErrExpired)
	if row(t, direct, name).Held {
		t.Error("it is held")
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := connects.Load() - before; n != 0 {
		t.Errorf("%d new connections", n)
	}
}
