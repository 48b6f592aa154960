package idem_test

import (
	"context"
	"errors"
	"net/http"
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

func store(t *testing.T, pool *pgxpool.Pool, cfg idem.Config) *idem.Store {
	t.Helper()
	s, err := idem.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newKey is a key that no other test has.
func newKey(t *testing.T) idem.Key {
	t.Helper()
	return idem.Key{Operation: "test.do", Scope: idem.Global, Key: pgtest.Name(t)}
}

var fp = idem.FingerprintOf([]byte("request"))

func TestDo_ReplaysByteForByte(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	want := idem.Reply{Status: 201, Header: http.Header{"X": {"a\x00\xff", "base64:", "é"}, "base64:Y": nil, "": {}}, Body: []byte("\x00\xff{}")}
	for i := range 3 {
		got, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			if idem.Tx(ctx) != tx {
				t.Error("Tx(ctx) is another one")
			}
			return want, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, idem.Result{Reply: want, Replayed: i > 0}) {
			t.Errorf("try %d: got %#v, want %#v", i, got, want)
		}
	}
}

func TestDoTx_Smoke(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	tx := begin(t, pool, pgx.TxOptions{})
	broken := errors.New("broken")
	if _, err := s.DoTx(t.Context(), tx, key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{}, broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	for i := range 3 {
		got, err := s.DoTx(t.Context(), tx, key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
			return idem.Reply{}, idem.Final(idem.Reply{Status: 1})
		})
		if err != nil || got.Status != 1 || got.Replayed != (i > 0) {
			t.Fatal(got, err)
		}
	}
	_, err := s.Do(t.Context(), key, fp, nil, nil)
	wantErr(t, err, idem.ErrInProgress)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Do(t.Context(), key, fp, nil, nil)
	if err != nil || !got.Replayed {
		t.Fatal(got, err)
	}
}

func TestDo_IdenticalRequestsHaveOneEffect(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), table(t, pool, "key text")
	const keys, duplicates = 10, 64
	var wg sync.WaitGroup
	for range keys {
		key := newKey(t)
		var replays, fresh atomic.Int64
		for range duplicates {
			wg.Go(func() {
				got, err := s.Do(t.Context(), key, fp, &idem.Options{Wait: 20 * time.Second}, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
					_, err := tx.Exec(ctx, "INSERT INTO "+effects.Sanitize()+" VALUES ($1)", key.Key)
					return idem.Reply{Body: []byte(key.Key)}, err
				})
				switch {
				case err != nil:
					t.Error(err)
				case string(got.Body) != key.Key:
					t.Errorf("got %q, want %q", got.Body, key.Key)
				case got.Replayed:
					replays.Add(1)
				default:
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 || replays.Load() != duplicates-1 {
			t.Errorf("%d effects, %d replays", fresh.Load(), replays.Load())
		}
	}
	if n := value[int](t, pool, "SELECT count(*) FROM "+effects.Sanitize()); n != keys {
		t.Errorf("%d effects, want %d", n, keys)
	}
}
