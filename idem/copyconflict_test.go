package idem_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Whoever has a key uncommitted is waited for, as the unique index has it; what the look
// before said is no longer true then.
func TestCopyOnce_WaitsForAKeyThatALookDoesNotSee(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"committed": true, "rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			target := keyed(t, pool)
			other := begin(t, pool, pgx.TxOptions{})
			if _, err := idem.CopyOnce(t.Context(), other, target, pgx.CopyFromRows(lines(50, 50, "other"))); err != nil {
				t.Fatal(err)
			}
			var got idem.Counts
			ended := make(chan error, 1)
			go func() {
				var err error
				got, err = loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "mine")), 200, 100)
				ended <- err
			}()
			waitForLockWait(t, pool, target.Table.Sanitize(), "COPY")
			end, want := other.Rollback, idem.Counts{Rows: 100, Inserted: 100}
			if commits {
				end, want = other.Commit, idem.Counts{Rows: 100, Inserted: 99, Existed: 1}
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, want)
			wantRows(t, pool, target, 100)
		})
	}
}

// Two loaders whose keys fall back take their locks in another order: one is told to
// repeat its transaction, and finds the other's rows then.
func TestCopyOnce_ADeadlockIsToBeRetried(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	var both sync.WaitGroup // have their first half in the table
	both.Add(2)
	ended := make(chan error, 2)
	for _, rows := range [][][]any{append(lines(101, 200, "a"), lines(1, 100, "a")...), append(lines(1, 100, "b"), []any{int64(1), "b"}, []any{int64(150), "b"})} {
		go func() {
			next, arrived := 0, sync.OnceFunc(both.Done)
			defer arrived()
			_, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromFunc(func() ([]any, error) {
				if next++; next == len(rows)+1 {
					arrived()
					both.Wait()
					return nil, nil
				}
				return rows[next-1], nil
			}), 100, 100)
			ended <- err
		}()
	}
	first, second := <-ended, <-ended
	if (first == nil) == (second == nil) {
		t.Fatalf("errors are %v and %v, want one", first, second)
	}
	wantErr(t, errors.Join(first, second), idem.ErrRetryTx)
}
