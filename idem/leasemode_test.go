package idem_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestLeaseMode_WorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			pool := modePoolOf(t, mode, 2, new(atomic.Int64))
			s := holder(t, pool, idem.Config{Lease: short})
			for _, want := range awkward {
				key := idem.Key{Operation: `it's "op" \ $1`, Scope: `é '"\`, Key: newKey(t).Key + `'"\$1`}
				release(t, claim(t, s, key))
				a := claim(t, s, key)
				for range 2 {
					got, err := a.Step(t.Context(), `é '"\ $1`, func(pgx.Tx) ([]byte, error) { return want.Body, nil })
					if err != nil || string(got) != string(want.Body) {
						t.Errorf("Step: %q, %v", got, err)
					}
				}
				if err := a.Finish(t.Context(), want, func(pgx.Tx) error { return nil }); err != nil {
					t.Fatalf("Finish: %v", err)
				}
				for _, s := range []*idem.Store{s, holder(t, direct, idem.Config{})} {
					again, err := s.Begin(t.Context(), key, fp)
					if err != nil {
						t.Fatal(err)
					}
					if got, ok := again.Replay(); !ok || !reflect.DeepEqual(got, want) {
						t.Errorf("replay %#v (%t), want %#v", got, ok, want)
					}
				}
				forget(t, s, key)
			}
			key := newKey(t)
			a := claim(t, s, key)
			renewed(t, direct, key, 2)
			finish(t, a)
			if _, err := s.Backlog(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLeaseMode_RoundTrips(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			var count atomic.Int64
			s := holder(t, modePoolOf(t, mode, 1, &count), idem.Config{})
			ctx := t.Context()
			var key idem.Key
			var a *idem.Attempt
			begin := func() (err error) { a, err = s.Begin(ctx, key, fp); return err }
			steps := []struct {
				what string
				want int64
				do   func() error
			}{
				{"Begin", 1, begin},
				{"Step", 2, func() error {
					_, err := a.Step(ctx, "s", func(pgx.Tx) ([]byte, error) { return nil, nil })
					return err
				}},
				{"Release", 1, func() error { return a.Release(ctx) }},
				{"Begin again", 1, begin},
				{"Finish", 2, func() error { return a.Finish(ctx, answer, nil) }},
				{"replay", 1, begin},
				{"Forget", 1, func() error { return s.Forget(ctx, key) }},
			}
			for i := range 3 {
				key = newKey(t)
				for _, step := range steps {
					before := count.Load()
					if err := step.do(); err != nil {
						t.Fatalf("%s: %v", step.what, err)
					}
					if got := count.Load() - before; i > 0 && got != step.want {
						t.Errorf("%s: %d round trips, want %d", step.what, got, step.want)
					}
				}
			}
		})
	}
}

// A process that falls silent loses the key when its lease has lapsed, and not
// before; it is told earlier, and what it writes when it wakes up is refused.
func TestTakeover_OfAHolderThatFellSilent(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, direct)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	a := claim(t, holder(t, pool, idem.Config{Lease: 6 * time.Second}), key)
	renewed(t, direct, key, 1)
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })

	s := holder(t, direct, idem.Config{})
	var b *idem.Attempt
	waitUntil(t, "a takeover", func() bool {
		began := time.Now()
		left := rowOf(t, direct, key).LeaseLeft
		var err error
		if b, err = s.Begin(t.Context(), key, fp); err == nil && left > time.Since(began) {
			t.Errorf("taken over with %s left, %s ago", left, time.Since(began))
		}
		return err == nil
	})
	select {
	case <-a.Done():
		wantErr(t, a.Err(), idem.ErrLapsed)
	default:
		t.Error("the holder has not been told")
	}
	if !b.Previous() {
		t.Error("the next attempt has not been told")
	}
	proxy.SetStall(false)
	wantErr(t, a.Finish(context.WithoutCancel(t.Context()), answer, insert), idem.ErrFenced)
	if count() != 0 {
		t.Errorf("%d effects of the stale attempt", count())
	}
	finish(t, b)
}
