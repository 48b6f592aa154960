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

// counting is a pool of one connection, and a count of the round trips of a first call.
func counting(t *testing.T, change ...func(*pgxpool.Config)) (*pgxpool.Pool, func(*idem.Store) int64) {
	t.Helper()
	const mode = pgx.QueryExecModeCacheStatement
	pgtest.NotPooledIn(t, mode)
	var count atomic.Int64
	pool := modePoolOf(t, mode, 1, &count, change...)
	trips := func(s *idem.Store) int64 {
		t.Helper()
		before := count.Load()
		got, err := s.Do(t.Context(), newKey(t), fp, nil, reply)
		wantResult(t, got, err, created, false)
		return count.Load() - before
	}
	for _, first := range []bool{false, true} { // prepares the statements
		s := store(t, pool, idem.Config{})
		idem.LookFirst(s, first)
		trips(s)
	}
	return pool, trips
}

// A store that can't claim at once stops trying for a while.
func TestDo_ClaimsAtOnceNotInVain(t *testing.T) {
	t.Parallel()
	own := ownDatabase(t).Config().ConnConfig.Database // at SERIALIZABLE other tests are conflicts
	for level, want := range map[string][]int64{
		"serializable": {4, 3, 3, 3}, "repeatable read": {2, 2}, "read committed": {2, 2},
	} {
		pool, trips := counting(t, func(cfg *pgxpool.Config) {
			cfg.ConnConfig.Database = own
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		})
		s := store(t, pool, idem.Config{})
		for i, want := range want {
			if got := trips(s); got != want {
				t.Errorf("%s: call %d took %d round trips, want %d", level, i+1, got, want)
			}
		}
	}
}

// A call that finds another one running learns nothing of those that come after it.
func TestDo_ClaimsAtOnceAlsoBehindADuplicate(t *testing.T) {
	t.Parallel()
	pool, trips := counting(t)
	s, key, holder := store(t, pool, idem.Config{}), newKey(t), begin(t, pgtest.Pool(t), pgx.TxOptions{})
	if _, err := store(t, pgtest.Pool(t), idem.Config{}).DoTx(t.Context(), holder, key, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.Do(t.Context(), key, fp, nil, unreached(t))
		wantErr(t, err, idem.ErrInProgress)
		if got := trips(s); got != 2 {
			t.Errorf("a first call behind a duplicate took %d round trips, want 2", got)
		}
	}
}

// Who uses a key for another request may go on with that: it is looked for, as a replay is.
func TestDo_LooksFirstBehindAMismatch(t *testing.T) {
	t.Parallel()
	pool, trips := counting(t)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	rowState{state: 2, expires: "1 h"}.put(t, pool, key)
	_, err := s.Do(t.Context(), key, idem.FingerprintOf(nil), nil, unreached(t))
	wantErr(t, err, idem.ErrMismatch)
	for i, want := range []int64{3, 2} {
		if got := trips(s); got != want {
			t.Errorf("first call %d behind it took %d round trips, want %d", i+1, got, want)
		}
	}
}

// What a claim writes is written again by its reply, which leaves the indexes alone where
// that came within a second.
func TestDoTx_StoresItsReplyWithoutAnIndexEntry(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t) // the page has room
	s := store(t, pool, idem.Config{})
	waitUntil(t, "a call that takes less than a second", func() bool {
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, reply); err != nil {
			t.Fatal(err)
		}
		var updated, hot int
		var quick bool
		err := tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c),
				(SELECT done_at - created_at < interval '0.9 s' FROM gatepost.idempotency_keys)
			FROM CAST('gatepost.idempotency_keys' AS regclass) AS c`).Scan(&updated, &hot, &quick)
		if err != nil || updated != 1 || quick && hot != 1 {
			t.Errorf("%d updates, %d of them HOT, %v; want one, HOT", updated, hot, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		return quick
	})
}
