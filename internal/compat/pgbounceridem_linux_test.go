package compat_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Each transaction may get another connection of the server's, so a claim, its lock
// and its settings must live and end with the transaction.
func TestPgBouncer_RunsOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, 4, func(t *testing.T, pool *pgxpool.Pool) {
		direct := pgtest.Pool(t)
		effects := table(t, direct)
		store, err := idem.New(pool, idem.Config{})
		if err != nil {
			t.Fatal(err)
		}
		before := session(t, pool)
		want := idem.Reply{Status: 201, Header: map[string][]string{"A": {"\xff"}}, Body: []byte("\x00\xff")}
		for i := range 8 {
			key := idem.Key{Operation: "compat", Scope: idem.Global, Key: pgtest.Name(t)}
			ran, other := crowd(t, 16, want, func(fn func(context.Context, pgx.Tx) (idem.Reply, error)) (r idem.Result, err error) {
				o := []*idem.Options{nil, {Wait: 20 * time.Second}}[i%2]
				if i%4 < 2 {
					return store.Do(t.Context(), key, idem.FingerprintOf(nil), o, fn)
				}
				err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					r, err = store.DoTx(t.Context(), tx, key, idem.FingerprintOf(nil), o, fn)
					return err
				})
				return r, err
			}, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				return want, insert(ctx, effects, key.Key)(tx)
			})
			if n := value[int](t, direct, "SELECT count(*) FROM "+effects+" WHERE note = $1", key.Key); ran != 1 || other != 15 || n != 1 {
				t.Errorf("%d ran, %d were answered otherwise, %d effects", ran, other, n)
			}
		}
		after := session(t, pool)
		for key := range before {
			if key != "backend" && after[key] != before[key] {
				t.Errorf("%s: was %q, is %q", key, before[key], after[key])
			}
		}
	})
}

// crowd sends identical requests at once. All get that reply, or are told that it is
// in progress.
func crowd(t *testing.T, n int, want idem.Reply, call func(func(context.Context, pgx.Tx) (idem.Reply, error)) (idem.Result, error), fn func(context.Context, pgx.Tx) (idem.Reply, error)) (ran, other int64) {
	t.Helper()
	var fresh, rest atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			got, err := call(fn)
			switch {
			case errors.Is(err, idem.ErrInProgress):
				rest.Add(1)
			case err != nil || !reflect.DeepEqual(got.Reply, want):
				t.Errorf("got %v, %v", got, err)
			case got.Replayed:
				rest.Add(1)
			default:
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	return fresh.Load(), rest.Load()
}
