package idem_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var chaosKeys = flag.Int("chaos.keys", 40, "keys of the chaos test; 400 for a long one")

// Whatever dies, and whenever: one effect a key, and each reply is the same to the
// byte. Nothing in the ledger keeps a second effect out.
//
// The long one: go test ./idem -run TestChaos -chaos.keys=400 -v
func TestChaos_OneEffectAKey(t *testing.T) {
	t.Parallel()
	const duplicates, clients = 6, 12
	url, name := pgtest.Database(t), "chaos "+pgtest.Name(t)[len(t.Name()):] // behind a pooler others get the name, too
	direct := pgtest.Connect(t, pgtest.Direct(t, url))
	effects := newLedger(t, direct)
	exec(t, direct, "ALTER TABLE "+effects.name+" ADD attempt uuid DEFAULT gen_random_uuid()")
	s := store(t, chaosPool(t, url, name, clients), idem.Config{})
	var calls atomic.Int64
	stop := killEvery(t, direct, name, 15*time.Millisecond, &calls)
	defer stop()

	requests := make(chan idem.Key)
	var mu sync.Mutex
	replies := map[idem.Key]idem.Reply{}
	var workers sync.WaitGroup
	for range clients {
		workers.Go(func() {
			for key := range requests {
				got, ok := persist(t, s, key, effects, &calls)
				mu.Lock()
				if first, seen := replies[key]; !ok || seen && !reflect.DeepEqual(got.Reply, first) {
					t.Errorf("got %v, and %v before", got.Reply, first)
				}
				replies[key] = got.Reply
				mu.Unlock()
			}
		})
	}
	for keys := range *chaosKeys {
		key := newKey(t)
		key.Scope = idem.Scope(fmt.Sprint(keys))
		for range duplicates {
			requests <- key
		}
	}
	close(requests)
	workers.Wait()
	killed := stop()
	t.Logf("%d keys, %d connections killed", len(replies), killed)
	if killed == 0 {
		t.Error("nothing was killed")
	}
	for key := range replies {
		effects.want(t, key.Key, 1)
	}
}

// persist calls until it is answered, as a client does that must.
func persist(t *testing.T, s *idem.Store, key idem.Key, effects ledger, calls *atomic.Int64) (idem.Result, bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && !t.Failed(); { // one failure is enough
		calls.Add(1)
		o := []*idem.Options{nil, {Wait: 100 * time.Millisecond}}[rand.IntN(2)]
		got, err := s.Do(t.Context(), key, fp, o, chaosWork(key, effects))
		switch {
		case err == nil:
			return got, true
		case errors.Is(err, idem.ErrInProgress), errors.Is(err, idem.ErrUnavailable):
		default:
			t.Errorf("neither a reply nor an error to come back for: %v", err)
			return idem.Result{}, false
		}
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond) //nolint:forbidigo // the client's pause
	}
	t.Error("no answer in two minutes")
	return idem.Result{}, false
}

// chaosWork has an effect, takes its time, and answers something that differs each
// time it runs.
func chaosWork(key idem.Key, effects ledger) work {
	return func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		var attempt string
		if err := tx.QueryRow(ctx, "INSERT INTO "+effects.name+" (note) VALUES ($1) RETURNING attempt", key.Key).Scan(&attempt); err != nil {
			return idem.Reply{}, err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, rand.Float64()*0.004); err != nil {
			return idem.Reply{}, err
		}
		sum := sha256.Sum256([]byte(attempt))
		return idem.Reply{Status: 201, Header: map[string][]string{"A": {attempt}}, Body: sum[:]}, nil
	}
}

// chaosPool is a pool whose connections have a name of their own.
func chaosPool(t *testing.T, url, name string, size int32) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, maxConns(size), setting("application_name", name))
}

// killEvery terminates one connection of that name at a time, until it is stopped, and
// no more of them than there are calls: a machine that is busy with other things must
// come to an end too. stop says how many.
func killEvery(t *testing.T, pool *pgxpool.Pool, name string, every time.Duration, calls *atomic.Int64) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	killed := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for seen := int64(0); ; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if seen == calls.Load() {
				continue
			}
			seen = calls.Load()
			tag, err := pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 1`, name)
			if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "canceled") {
				t.Error(err)
			}
			killed += int(tag.RowsAffected())
		}
	})
	return func() int {
		cancel()
		killer.Wait()
		return killed
	}
}
