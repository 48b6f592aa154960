package idem_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Whatever dies, and whenever, in lease mode: each step and each Finish has its
// effect once a key, and each reply is the same to the byte.
func TestChaos_OfAttempts(t *testing.T) {
	t.Parallel()
	const duplicates, clients = 4, 8
	direct, name := pgtest.Pool(t), "chaos of attempts "+newKey(t).Key[len(t.Name()):]
	effects := newLedger(t, direct)
	pool := chaosPool(t, name, clients+4)
	stop := killEvery(t, direct, name, 15*time.Millisecond)
	defer stop()

	requests := make(chan idem.Key)
	var mu sync.Mutex
	replies := map[idem.Key]idem.Reply{}
	var workers sync.WaitGroup
	for range clients {
		workers.Go(func() {
			for key := range requests {
				got := attemptUntilDone(t, pool, key, effects)
				mu.Lock()
				if first, seen := replies[key]; seen && !reflect.DeepEqual(got, first) {
					t.Errorf("got %v, and %v before", got, first)
				}
				replies[key] = got
				mu.Unlock()
			}
		})
	}
	for keys := range *chaosKeys / 2 {
		key := newKey(t)
		key.Scope = idem.Scope(fmt.Sprint(keys))
		for range duplicates {
			requests <- key
		}
	}
	close(requests)
	workers.Wait()
	t.Logf("%d keys, %d connections killed", len(replies), stop())
	for key := range replies {
		effects.want(t, "step "+key.Key, 1)
		effects.want(t, "finish "+key.Key, 1)
	}
}

// attemptUntilDone begins until it gets a reply, each time as another process.
func attemptUntilDone(t *testing.T, pool *pgxpool.Pool, key idem.Key, effects ledger) idem.Reply {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		s := holder(t, pool, idem.Config{Lease: 300 * time.Millisecond})
		a, err := s.Begin(t.Context(), key, fp)
		switch {
		case err == nil:
			if got, ok := a.Replay(); ok {
				return got
			}
			_ = oneAttempt(t, a, key, effects) // the next attempt tells what came of it
		case !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrUnavailable):
			t.Errorf("neither an attempt nor an error to come back for: %v", err)
		}
		if err := s.Close(t.Context()); err != nil { // without Release, as a crash
			t.Error(err)
		}
		time.Sleep(time.Duration(mathrand.IntN(20)) * time.Millisecond) //nolint:forbidigo // the client's pause
	}
	t.Error("no answer in a minute")
	return idem.Reply{}
}

// oneAttempt may fail at every step, and crash between them.
func oneAttempt(t *testing.T, a *idem.Attempt, key idem.Key, effects ledger) error {
	t.Helper()
	write := func(note string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+effects.name+" SELECT $1 FROM pg_sleep($2)", note, mathrand.Float64()*0.004)
			return err
		}
	}
	output, err := a.Step(t.Context(), "step", func(tx pgx.Tx) ([]byte, error) {
		return []byte(rand.Text()), write("step " + key.Key)(tx)
	})
	if err != nil {
		return err
	}
	switch mathrand.IntN(4) {
	case 0:
		return nil // crash
	case 1:
		return a.Release(t.Context())
	default:
		return a.Finish(t.Context(), idem.Reply{Status: 200, Body: append(output, rand.Text()...)}, write("finish "+key.Key))
	}
}
