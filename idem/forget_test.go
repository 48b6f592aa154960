package idem_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestForget_LetsTheKeyRunAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	replica := poolWith(t, pgtest.Owner(t, pgtest.URL(t)), setting("session_replication_role", "replica"))
	s := holder(t, pool, idem.Config{})
	for _, c := range beginTable {
		key := newKey(t)
		if c.row == "" {
			wantErr(t, s.Forget(t.Context(), key), idem.ErrNotFound)
			continue
		}
		put(t, replica, key, c.row)
		err := s.Forget(t.Context(), key)
		if c.same == running {
			progress, ok := errors.AsType[*idem.InProgressError](err)
			if !ok || progress.RetryAfter < 50*time.Second || rowOf(t, pool, key).State != 1 {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || rowOf(t, pool, key).State != 0 || steps(t, pool, key) != 0 {
			t.Errorf("%s: %v, row %+v, %d steps", c.name, err, rowOf(t, pool, key), steps(t, pool, key))
		}
	}
	wantErr(t, s.Forget(t.Context(), idem.Key{}), idem.ErrInvalidKey)
}

// A claim of transaction mode is refused as well, and nobody waits for it.
func TestForget_IsRefusedWhileTransactionModeRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := holder(t, pool, idem.Config{})
	for _, row := range []string{"", "4, NULL::timestamptz, now() + interval '1 h', 1"} {
		key := newKey(t)
		if row != "" {
			put(t, pool, key, row)
		}
		_, err := s.Do(t.Context(), key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
			wantErr(t, s.Forget(t.Context(), key), idem.ErrInProgress)
			return answer, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		forget(t, s, key)
	}
}

// Forgetting and running race: what ran is never forgotten in the middle.
func TestForget_AgainstClaims(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	var running atomic.Int32
	enter := func() {
		if n := running.Add(1); n != 1 {
			t.Errorf("%d run at once", n)
		}
	}
	var racing sync.WaitGroup
	for n := range 6 {
		s := holder(t, pool, idem.Config{})
		racing.Go(func() {
			for range 60 {
				switch n % 3 {
				case 0:
					_, err := s.Do(t.Context(), key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
						enter()
						running.Add(-1)
						return answer, nil
					})
					if err != nil && !errors.Is(err, idem.ErrInProgress) {
						t.Error(err)
					}
				case 1:
					a, err := s.Begin(t.Context(), key, fp)
					if errors.Is(err, idem.ErrInProgress) {
						continue
					}
					if err != nil {
						t.Error(err)
						continue
					}
					if _, done := a.Replay(); done {
						continue
					}
					enter()
					running.Add(-1)
					if err := a.Finish(t.Context(), answer, nil); err != nil {
						t.Errorf("a live claim was forgotten: %v", err)
					}
				default:
					err := s.Forget(t.Context(), key)
					if err != nil && !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrNotFound) {
						t.Error(err)
					}
				}
			}
		})
	}
	racing.Wait()
}
