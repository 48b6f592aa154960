package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Garbage is a kind of rows that nobody needs any more.
type Garbage struct {
	Name string // for people
	JSON string // for programs
	// backlog counts what is to be removed, up to mostCounted.
	backlog func(ctx context.Context, pool *pgxpool.Pool) (Backlog, error)
	// collect removes at most so many rows, and says whether there may be more.
	collect func(ctx context.Context, q queries, from *place, most int32) (removed int64, more bool, err error)
}

// Backlog is how many rows are to be removed, and how long the oldest has been due.
type Backlog struct {
	Due  int64 // counted up to MostCounted
	Age  time.Duration
	More bool // there are more than MostCounted
}

// MostCounted is how far a Backlog counts, and collectAtOnce how many rows a transaction
// reads or removes.
const (
	MostCounted   = 100_000
	collectAtOnce = 1000
)

// queries are those of a transaction.
type queries struct {
	idem *idemdb.Queries
	lock *lockdb.Queries
}

// place is how far a collection has come.
type place struct {
	name string
	slot int32
}

// AllGarbage are the kinds that there are: idempotency keys that expired, leases that
// nobody held for a week, and waiters whose clients died.
var AllGarbage = []Garbage{
	{"idempotency keys", "keys", keyBacklog, collectKeys},
	{"free leases", "leases", leaseBacklog, collectLeases},
	{"dead waiters", "waiters", waiterBacklog, collectWaiters},
}

// Backlog counts what Collect would remove. One statement, no lock.
func (g Garbage) Backlog(ctx context.Context, pool *pgxpool.Pool) (Backlog, error) {
	b, err := g.backlog(ctx, pool)
	if err != nil {
		return Backlog{}, fmt.Errorf("count %s: %w", g.Name, err)
	}
	if b.More = b.Due > MostCounted; b.More {
		b.Due = MostCounted
	}
	return b, nil
}

// Collect removes rows, at most so many, or all when most is 0. It takes 1,000 a
// transaction, skips rows that are locked, and returns what was removed also with an
// error.
func (g Garbage) Collect(ctx context.Context, pool *pgxpool.Pool, most int64) (removed int64, err error) {
	var from place
	for more := true; more; {
		batch := int32(collectAtOnce)
		if most > 0 {
			batch = int32(min(collectAtOnce, most-removed))
		}
		var n int64
		// At another isolation level SKIP LOCKED fails with 40001.
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) (err error) {
			n, more, err = g.collect(ctx, queries{idemdb.New(tx), lockdb.New(tx)}, &from, batch)
			return err
		})
		if err != nil {
			return removed, fmt.Errorf("remove %s: %w", g.Name, err)
		}
		if removed += n; most > 0 && removed >= most {
			return removed, nil
		}
	}
	return removed, nil
}

func keyBacklog(ctx context.Context, pool *pgxpool.Pool) (Backlog, error) {
	row, err := idemdb.New(pool).KeyBacklog(ctx, MostCounted+1)
	return Backlog{Due: row.Expired, Age: time.Duration(row.AgeUs) * time.Microsecond}, err
}

func leaseBacklog(ctx context.Context, pool *pgxpool.Pool) (Backlog, error) {
	row, err := lockdb.New(pool).LeaseBacklog(ctx, MostCounted+1)
	return Backlog{Due: row.Due, Age: time.Duration(row.AgeUs) * time.Microsecond}, err
}

func waiterBacklog(ctx context.Context, pool *pgxpool.Pool) (Backlog, error) {
	row, err := lockdb.New(pool).WaiterBacklog(ctx)
	return Backlog{Due: row.Due, Age: time.Duration(row.AgeUs) * time.Microsecond}, err
}

func collectKeys(ctx context.Context, q queries, _ *place, most int32) (int64, bool, error) {
	n, err := q.idem.KeyCollect(ctx, most)
	return n, n == int64(most), err
}

// collectLeases reads on from where the last batch ended.
func collectLeases(ctx context.Context, q queries, from *place, most int32) (int64, bool, error) {
	row, err := q.lock.LeaseCollect(ctx, lockdb.LeaseCollectParams{AfterName: from.name, AfterSlot: from.slot, Most: collectAtOnce, Remove: most})
	*from = place{row.LastName, row.LastSlot}
	return row.Removed, row.Seen == collectAtOnce, err
}

func collectWaiters(ctx context.Context, q queries, _ *place, _ int32) (int64, bool, error) {
	n, err := q.lock.WaiterSweep(ctx)
	return n, false, err
}
