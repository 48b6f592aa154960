package idem_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var isolations = []string{"read committed", "repeatable read", "serializable"}

// A replay that the store didn't expect begins with a claim. That one leaves the row alone,
// as a look does, whoever has it locked.
func TestReplay_BehindAFirstCallLocksNoRow(t *testing.T) {
	t.Parallel()
	for _, level := range isolations {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := ownDatabase(t, "default_transaction_isolation = '"+level+"'")
			key := newKey(t)
			got, err := store(t, pool, idem.Config{}).Do(t.Context(), key, fp, nil, reply)
			wantResult(t, got, err, created, false)
			holder := begin(t, pool, pgx.TxOptions{})
			if _, err := holder.Exec(t.Context(), `SELECT FROM gatepost.idempotency_keys FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			s := store(t, pool, idem.Config{})
			for range 2 {
				got, err := s.Do(t.Context(), key, fp, nil, unreached(t))
				wantResult(t, got, err, created, true)
			}
			_, err = store(t, pool, idem.Config{}).Do(t.Context(), key, idem.FingerprintOf(nil), nil, unreached(t))
			wantErr(t, err, idem.ErrMismatch)
		})
	}
}

// At SERIALIZABLE a read of what isn't there is a conflict with whoever puts it there, near
// enough in the index. Calls of different keys don't meet so.
func TestDo_SerializableCallsOfDifferentKeysDontMeet(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t, "default_transaction_isolation = 'serializable'")
	var runs int
	var nested func(depth int) error // the last one that begins commits first
	nested = func(depth int) error {
		if depth == 0 {
			return nil
		}
		s := store(t, pool, idem.Config{}) // a new one claims at once
		_, err := s.Do(t.Context(), newKey(t), fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
			runs++
			return created, nested(depth - 1)
		})
		return err
	}
	if err := nested(3); err != nil || runs != 3 {
		t.Fatalf("three calls ran %d times, %v", runs, err)
	}
}

// A store that can't claim at once stops trying for a while.
func TestDo_ClaimsAtOnceNotInVain(t *testing.T) {
	t.Parallel()
	const mode = pgx.QueryExecModeCacheStatement
	pgtest.NotPooledIn(t, mode)
	own := ownDatabase(t).Config().ConnConfig.Database // at SERIALIZABLE other tests are conflicts
	var count atomic.Int64
	pool := modePoolOf(t, mode, 1, &count, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Database = own
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	})
	trips := func(s *idem.Store) int64 {
		t.Helper()
		before := count.Load()
		got, err := s.Do(t.Context(), newKey(t), fp, nil, reply)
		wantResult(t, got, err, created, false)
		return count.Load() - before
	}
	trips(store(t, pool, idem.Config{})) // prepares the statements
	s := store(t, pool, idem.Config{})
	for i, want := range []int64{4, 3, 3, 3} {
		if got := trips(s); got != want {
			t.Errorf("call %d took %d round trips, want %d", i+1, got, want)
		}
	}
}
