package pglock_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lapseAfter is long enough for a statement to start before, on a machine that is not busy.
const lapseAfter = time.Second

// waitsUntilItLapsed runs what prepare returns, for a lease of its own, while the lease's
// row is locked, and returns what became of it when the lease had lapsed before it got the
// lock. Where the lease lapsed before it waited, on a busy machine, the next one lasts
// longer. The row isn't changed under the lock: PostgreSQL computes a changed row's
// expressions again after the wait, and would hide a clock that is read too early.
func waitsUntilItLapsed(t *testing.T, pool *pgxpool.Pool, prepare func(*pglock.Lease) (run func() error)) (*pglock.Lease, error) {
	t.Helper()
	c := client(t, pool, pglock.Config{TTL: 2 * time.Minute, RenewEvery: time.Minute, FenceTimeout: time.Minute})
	const live = `SELECT expires_at > clock_timestamp() FROM gatepost.leases WHERE name = $1`
	for lasts := lapseAfter; lasts < 20*time.Second; lasts *= 2 {
		l := acquire(t, c, pgtest.Name(t), nil)
		run := prepare(l)
		exec(t, pool, `UPDATE gatepost.leases SET expires_at = clock_timestamp() + $2 WHERE name = $1`, l.Name(), lasts)
		other := lockRow(t, pool, l.Name())
		done := make(chan error, 1)
		go func() { done <- run() }()
		eventually(t, "a wait for the lock, or its end", 20*time.Second, func() bool {
			return isBlocked(t, pool, other.Conn().PgConn().PID()) || len(done) > 0
		})
		inTime := len(done) == 0 && value[bool](t, pool, live, l.Name())
		if inTime {
			eventually(t, "the end of the lease", 30*time.Second, func() bool { return !value[bool](t, pool, live, l.Name()) })
		}
		commit(t, other)
		if err := <-done; inTime {
			return l, err
		}
	}
	t.Fatal("it never waited before the lease lapsed")
	return nil, nil
}
