package pglock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const day = 24 * time.Hour

// longFree puts a name into the table whose lease was taken that long ago and lapsed
// a minute later; a released one has no holder.
func longFree(t *testing.T, pool *pgxpool.Pool, name string, ago time.Duration, holder string) {
	t.Helper()
	exec(t, pool, `
		INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
		SELECT $1, extract(epoch FROM at) * 1000000, CASE WHEN $3 <> '' THEN '11111111-2222-4333-8444-555555555555'::uuid END, nullif($3, ''),
			at, at, at + interval '1 min', 1
		FROM (SELECT clock_timestamp() - $2::interval AS at) AS a`, name, ago, holder)
}

func names(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return value[string](t, pool, `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM gatepost.leases`)
}

func TestGC_RemovesWhatWasFreeForAWeek(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{})
	longFree(t, pool, "released", 8*day, "")
	longFree(t, pool, "lapsed", 8*day, "web-1")
	longFree(t, pool, "newly-released", 6*day, "")
	longFree(t, pool, "newly-lapsed", 6*day, "web-1")
	longFree(t, pool, "reserved", 8*day, "")
	exec(t, pool, `UPDATE gatepost.leases SET reserved_for = 'web-2', reserved_until = clock_timestamp() + interval '1 min' WHERE name = 'reserved'`)
	longFree(t, pool, "long-held", 8*day, "web-1")
	exec(t, pool, `UPDATE gatepost.leases SET expires_at = clock_timestamp() + interval '1 min' WHERE name = 'long-held'`)
	longFree(t, pool, "token-ahead", 8*day, "")
	exec(t, pool, `UPDATE gatepost.leases SET token = token + 400 * 86400000000 WHERE name = 'token-ahead'`)

	for _, want := range []int64{2, 0} {
		if removed, err := c.GC(t.Context()); err != nil || removed != want {
			t.Errorf("GC removed %d (%v), want %d", removed, err, want)
		}
	}
	if got, want := names(t, pool), "long-held newly-lapsed newly-released reserved token-ahead"; got != want {
		t.Errorf("left are %q, want %q", got, want)
	}
}

func TestGC_GoesThroughAllNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, `
		INSERT INTO gatepost.leases (name, slot, token, acquired_at, renewed_at, expires_at, transitions)
		SELECT 'n' || n / 2, n % 2, 1, at, at, at, 1
		FROM generate_series(0, 3999) AS n
		CROSS JOIN LATERAL (SELECT clock_timestamp() - CASE WHEN n % 4 < 2 THEN interval '1 day' ELSE interval '8 days' END AS at) AS a`)
	if removed, err := client(t, pool, pglock.Config{}).GC(t.Context()); err != nil || removed != 2000 {
		t.Errorf("GC removed %d (%v), want 2000", removed, err)
	}
	if left := value[int64](t, pool, `SELECT count(*) FROM gatepost.leases WHERE expires_at > clock_timestamp() - interval '2 days'`); left != 2000 {
		t.Errorf("%d are left, want 2000", left)
	}
}

func TestGC_TokensStillRise(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{})
	longFree(t, pool, "n", 8*day, "web-1")
	token := value[int64](t, pool, `SELECT token FROM gatepost.leases`)
	stale, err := pglock.ParseSequencer(fmt.Sprintf("v1:exclusive:0:%d:11111111-2222-4333-8444-555555555555:n", token))
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := c.GC(t.Context()); err != nil || removed != 1 {
		t.Fatalf("GC removed %d (%v)", removed, err)
	}
	write := func(pgx.Tx) error { return nil }
	wantErr(t, c.InTx(t.Context(), stale, write), pglock.ErrFenced)
	lease := acquire(t, c, "n", nil)
	if lease.Token() <= token {
		t.Errorf("the token after GC is %d, and it was %d before", lease.Token(), token)
	}
	wantErr(t, c.InTx(t.Context(), stale, write), pglock.ErrFenced)
}

func TestGC_LeavesTheRowOfAnOpenFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{})
	longFree(t, pool, "fenced", 8*day, "web-1")
	longFree(t, pool, "free", 8*day, "")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		// A fence took it while the lease was good; the clock went on.
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases WHERE name = 'fenced' FOR KEY SHARE`); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if removed, err := c.GC(ctx); err != nil || removed != 1 {
			t.Errorf("GC removed %d (%v), want 1", removed, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, pool); got != "fenced" {
		t.Errorf("left are %q, want the fenced one", got)
	}
}

// Names are acquired while they are collected: whoever was granted a lease keeps it.
func TestGC_TakesNoLeaseFromItsHolder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{TTL: time.Minute})
	const rounds, each = 5, 300
	for round := range rounds {
		exec(t, pool, `
			INSERT INTO gatepost.leases (name, token, acquired_at, renewed_at, expires_at, transitions)
			SELECT 'r' || $1::int || '/' || n, 1, at, at, at, 1
			FROM generate_series(1, $2::int) AS n
			CROSS JOIN LATERAL (SELECT clock_timestamp() - interval '8 days' AS at) AS a`, round, each)
		held := acquireWhileCollecting(t, c, round, each)
		for _, l := range held {
			if err := l.Renew(t.Context()); err != nil {
				t.Fatalf("round %d: a lease that was granted is gone: %v", round, err)
			}
			if l.Token() < 1_000_000 {
				t.Errorf("token %d isn't from the clock", l.Token())
			}
		}
	}
}

// acquireWhileCollecting acquires all names of a round, eight at a time.
func acquireWhileCollecting(t *testing.T, c *pglock.Client, round, each int) []*pglock.Lease {
	t.Helper()
	held := make([]*pglock.Lease, each)
	var acquiring, collecting sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	collecting.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.GC(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for worker := range 8 {
		acquiring.Go(func() {
			for n := worker; n < each; n += 8 {
				l, err := c.Acquire(t.Context(), fmt.Sprintf("r%d/%d", round, n+1), nil)
				if err != nil {
					t.Error(err)
					return
				}
				held[n] = l
			}
		})
	}
	acquiring.Wait()
	stop()
	collecting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return held
}
