package idem_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgxpool"
)

var crowdKeys = flag.Int("crowd.keys", 50, "keys of the test of identical requests; 1000 for a long one")

// crowd sends identical requests for a key at once and counts what they came to.
func crowd(t *testing.T, n int, key idem.Key, call func() (idem.Result, error)) (ran, replayed, busy int64) {
	t.Helper()
	var fresh, again, refused atomic.Int64
	want := idem.Reply{Status: 201, Body: []byte(key.Key)}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			<-start
			got, err := call()
			switch {
			case errors.Is(err, idem.ErrInProgress):
				refused.Add(1)
			case err != nil:
				t.Errorf("neither a reply nor in progress: %v", err)
			case !reflect.DeepEqual(got.Reply, want):
				t.Errorf("got %v, want %v", got.Reply, want)
			case got.Replayed:
				again.Add(1)
			default:
				fresh.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return fresh.Load(), again.Load(), refused.Load()
}

// The long one: go test ./idem -run TestCrowd_Identical -crowd.keys=1000 -v
func TestCrowd_IdenticalRequestsHaveOneEffect(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	var total [3]int64
	for i := range *crowdKeys {
		key, o := newKey(t), []*idem.Options{nil, {Wait: 20 * time.Second}}[i%2]
		ran, replayed, busy := crowd(t, 64, key, func() (idem.Result, error) {
			return s.Do(t.Context(), key, fp, o, effects.write(key.Key, idem.Reply{Status: 201, Body: []byte(key.Key)}, nil))
		})
		if ran != 1 || o != nil && busy != 0 {
			t.Errorf("%d ran, %d replayed, %d in progress", ran, replayed, busy)
		}
		effects.want(t, key.Key, 1)
		total[0], total[1], total[2] = total[0]+ran, total[1]+replayed, total[2]+busy
	}
	t.Logf("%d keys: %d ran, %d replayed, %d in progress", *crowdKeys, total[0], total[1], total[2])
}

func TestCrowd_AtEachDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := ownDatabase(t, fmt.Sprintf("default_transaction_isolation = '%s'", level), "default_transaction_read_only = on")
			writer := pgtest.Connect(t, pool.Config().ConnString()+"&default_transaction_read_only=off")
			s, effects := store(t, pool, idem.Config{}), newLedger(t, writer)
			for i := range 10 {
				key, o := newKey(t), []*idem.Options{nil, {Wait: 20 * time.Second}}[i%2]
				ran, replayed, busy := crowd(t, 16, key, func() (idem.Result, error) {
					return s.Do(t.Context(), key, fp, o, effects.write(key.Key, idem.Reply{Status: 201, Body: []byte(key.Key)}, nil))
				})
				if ran != 1 || o != nil && busy != 0 {
					t.Errorf("%d ran, %d replayed, %d in progress", ran, replayed, busy)
				}
				effects.want(t, key.Key, 1)
			}
		})
	}
}

// Different keys at SERIALIZABLE meet on the pages of the table's index.
func TestCrowd_DifferentKeysAtSerializable(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t, "default_transaction_isolation = 'serializable'")
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	var wg sync.WaitGroup
	for range 200 {
		key := newKey(t)
		wg.Go(func() {
			got, err := s.Do(t.Context(), key, fp, nil, effects.write("x", created, nil))
			if err != nil || got.Replayed {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	effects.want(t, "x", 200)
}

// A call never asks for a connection while it has one.
func TestCrowd_SmallPoolDoesNotHang(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{1, 2} {
		cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = size
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
		for _, o := range []*idem.Options{nil, {Wait: 20 * time.Second}} {
			key := newKey(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			ran, replayed, busy := crowd(t, 50, key, func() (idem.Result, error) {
				return s.Do(ctx, key, fp, o, effects.write(key.Key, idem.Reply{Status: 201, Body: []byte(key.Key)}, nil))
			})
			cancel()
			if ran != 1 || o != nil && busy != 0 {
				t.Errorf("pool of %d: %d ran, %d replayed, %d in progress", size, ran, replayed, busy)
			}
			effects.want(t, key.Key, 1)
		}
	}
}
