package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
)

// collectAtOnce is how many rows one statement of GC removes: a transaction that is
// short. mostBacklog is how far Backlog counts.
const (
	collectAtOnce = 1000
	mostBacklog   = 10000
)

// GC removes what has expired: records and released keys after their retention, and
// claims that lapsed and were then left alone for as long. It never removes a claim
// with a live lease. Whether it runs, and when, changes nothing for callers, for whom
// the clock decides; it is only about space.
//
// Run it on every node, every few minutes: it takes 1,000 rows a transaction and
// skips those that another one is at. It goes on until none is left, or ctx ends: then
// it returns ctx's error with what was removed until there. With nothing to do, it is
// one look at an index.
//
// Errors: ErrUnavailable, ErrNotMigrated.
func (s *Store) GC(ctx context.Context) (removed int64, err error) {
	for {
		var n int64
		err := alone(ctx, s.pool, func(q *idemdb.Queries) (err error) {
			n, err = q.KeyCollect(ctx, collectAtOnce)
			return err
		})
		if err != nil {
			return removed, fmt.Errorf("collect expired keys: %w", translateOwn(ctx, err))
		}
		if removed += n; n < collectAtOnce { // what expires meanwhile is for the next time
			s.cfg.Logger.DebugContext(ctx, "expired keys removed", "keys", removed)
			return removed, nil
		}
	}
}

// Backlog is what GC has to do.
type Backlog struct {
	// Expired is the number of rows to be removed. It is counted up to 10,000.
	Expired int64
	// Age is how long ago the oldest of them expired. One that grows says that GC
	// isn't run often enough.
	Age time.Duration
}

// Backlog reports what GC has to do. One round trip, which reads 10,000 rows of the
// index at most.
//
// Errors: ErrUnavailable, ErrNotMigrated.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	row, err := idemdb.New(s.pool).KeyBacklog(ctx, mostBacklog)
	if err != nil {
		return Backlog{}, fmt.Errorf("count expired keys: %w", translateOwn(ctx, err))
	}
	return Backlog{Expired: row.Expired, Age: time.Duration(row.AgeUs) * time.Microsecond}, nil
}

// Forget removes the record of a key, so that it can run again: for an operator who
// knows that it must. It is refused while a claim is live, in either mode, and never
// waits. An attempt that has lapsed is fenced off by it. One round trip.
//
// Errors: *InProgressError (nothing was removed), ErrNotFound, ErrInvalidKey,
// ErrUnavailable, ErrNotMigrated.
func (s *Store) Forget(ctx context.Context, key Key) error {
	if err := key.validate(); err != nil {
		return err
	}
	var row idemdb.KeyForgetRow
	err := alone(ctx, s.pool, func(q *idemdb.Queries) (err error) {
		row, err = q.KeyForget(ctx, idemdb.KeyForgetParams{
			Operation: key.Operation, Scope: string(key.Scope), Key: key.Key, LockID: key.lock(),
		})
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("forget %s: %w", key, translateOwn(ctx, err))
	case row.Removed:
		return nil
	case row.Open && !row.Found:
		return fmt.Errorf("%s: %w", key, ErrNotFound)
	default:
		return fmt.Errorf("%s: %w", key, &InProgressError{RetryAfter: time.Duration(row.LeaseLeftUs) * time.Microsecond})
	}
}
