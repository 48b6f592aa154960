// Package operator is what the command line asks of a database beyond the API of
// pglock and idem: who waits for a lease, which transactions lock its row, how to take
// a lease from its holder, what has become of idempotency keys, and what can be
// removed. It holds no state and never waits for a lock longer than lockTimeout.
package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Waiter is a client that waits for a lease.
type Waiter struct {
	Holder string    // who it will be
	Since  time.Time // its place in the queue: when it came, or its last turn
	Waited time.Duration
}

// Waiters lists who waits for a name, the next one first. One statement, no lock.
func Waiters(ctx context.Context, pool *pgxpool.Pool, name string) ([]Waiter, error) {
	rows, err := lockdb.New(pool).WaiterList(ctx, lockdb.WaiterListParams{Name: name})
	if err != nil {
		return nil, fmt.Errorf("list the waiters of %q: %w", name, err)
	}
	waiters := make([]Waiter, len(rows))
	for i, r := range rows {
		waiters[i] = Waiter{Holder: r.Holder, Since: r.Since.Time, Waited: time.Duration(r.WaitedUs) * time.Microsecond}
	}
	return waiters, nil
}

// WaiterCounts counts the clients that wait for each of the names; a name that nobody
// waits for is left out. One statement, no lock.
func WaiterCounts(ctx context.Context, pool *pgxpool.Pool, names []string) (map[string]int64, error) {
	rows, err := lockdb.New(pool).WaiterCounts(ctx, lockdb.WaiterCountsParams{Names: names})
	if err != nil {
		return nil, fmt.Errorf("count waiters: %w", err)
	}
	counts := make(map[string]int64, len(rows))
	for _, r := range rows {
		counts[r.Name] = r.Clients
	}
	return counts, nil
}

// Tables lists at most so many tables, by their names as they are written in SQL, with
// and where possible without their schema. One statement, no lock.
func Tables(ctx context.Context, pool *pgxpool.Pool, prefix string, most int) ([]string, error) {
	names, err := lockdb.New(pool).TableNames(ctx, lockdb.TableNamesParams{Prefix: prefix, Most: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return names, nil
}
