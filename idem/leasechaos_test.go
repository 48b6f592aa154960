package idem_test

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
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

var chaosAttempts = flag.Int("chaos.attempts", 15, "keys of the chaos test of attempts; 400 for a long one")

// chaosLease is short, so that what is stopped is soon taken over.
const chaosLease = 300 * time.Millisecond

// Whatever dies, and whenever, in lease mode: each step and each Finish has its
// effect once a key, and each reply is the same to the byte. Some attempts are stopped
// until another has taken the key over, and then go on as if nothing had been.
//
// The long one: go test ./idem -run TestChaos -chaos.attempts=400 -v
func TestChaos_OfAttempts(t *testing.T) {
	t.Parallel()
	const duplicates, clients = 6, 12
	url, name := pgtest.Database(t), "chaos of attempts "+newKey(t).Key[len(t.Name()):]
	direct := pgtest.Connect(t, pgtest.Direct(t, url))
	effects := newLedger(t, direct)
	pool := chaosPool(t, url, name, clients+4)
	var calls atomic.Int64
	stop := killEvery(t, direct, name, 15*time.Millisecond, &calls)
	defer stop()

	requests := make(chan idem.Key)
	var mu sync.Mutex
	var late atomic.Int64
	replies := map[idem.Key]idem.Reply{}
	var workers sync.WaitGroup
	for range clients {
		workers.Go(func() {
			for key := range requests {
				got := attemptUntilDone(t, pool, key, effects, &calls, &late)
				mu.Lock()
				if first, seen := replies[key]; seen && !reflect.DeepEqual(got, first) {
					t.Errorf("got %v, and %v before", got, first)
				}
				replies[key] = got
				mu.Unlock()
			}
		})
	}
	for keys := range *chaosAttempts {
		key := newKey(t)
		key.Scope = idem.Scope(fmt.Sprint(keys))
		for range duplicates {
			requests <- key
		}
	}
	close(requests)
	workers.Wait()
	t.Logf("%d keys, %d connections killed, %d attempts woke up too late", len(replies), stop(), late.Load())
	if late.Load() == 0 {
		t.Error("no attempt woke up too late: it was no race")
	}
	for key, reply := range replies {
		if n, last := attemptOf(reply), rowOf(t, direct, key).AttemptNo; n != last {
			t.Errorf("attempt %d finished, after attempt %d was granted", n, last)
		}
		effects.want(t, "step "+key.Key, 1)
		effects.want(t, "finish "+key.Key, 1)
	}
}

// attemptOf is the number of the attempt that made a reply.
func attemptOf(r idem.Reply) (n int64) {
	_, _ = fmt.Sscan(string(r.Body), &n)
	return n
}

// attemptUntilDone begins until it gets a reply, each time as another process.
func attemptUntilDone(t *testing.T, pool *pgxpool.Pool, key idem.Key, effects ledger, calls, late *atomic.Int64) idem.Reply {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && !t.Failed(); { // one failure is enough
		calls.Add(1)
		s := holder(t, pool, idem.Config{Lease: chaosLease})
		a, err := s.Begin(t.Context(), key, fp)
		switch {
		case err == nil:
			if got, ok := a.Replay(); ok {
				return got
			}
			stop := func() { stopped(t, s, a, effects.pool, key) }
			if err := oneAttempt(t, a, key, effects, stop); errors.Is(err, idem.ErrFenced) {
				late.Add(1)
			} // the next attempt tells what came of it
		case !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrUnavailable):
			t.Errorf("neither an attempt nor an error to come back for: %v", err)
		}
		if err := s.Close(t.Context()); err != nil { // without Release, as a crash
			t.Error(err)
		}
		time.Sleep(time.Duration(mathrand.IntN(20)) * time.Millisecond) //nolint:forbidigo // the client's pause
	}
	t.Error("no answer in two minutes")
	return idem.Reply{}
}

// stopped ends an attempt's heartbeats, and returns when another has the key, or when
// nobody has wanted it for some leases.
func stopped(t *testing.T, s *idem.Store, a *idem.Attempt, pool *pgxpool.Pool, key idem.Key) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	mine := rowOf(t, pool, key).Attempt
	for deadline := time.Now().Add(5 * chaosLease); time.Now().Before(deadline) && rowOf(t, pool, key).Attempt == mine; {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
	if a.Err() == nil {
		t.Error("the attempt holds without a heartbeat")
	}
}

// oneAttempt may fail at every step, crash between them, and be stopped.
func oneAttempt(t *testing.T, a *idem.Attempt, key idem.Key, effects ledger, stop func()) error {
	t.Helper()
	write := func(note string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+effects.name+" SELECT $1 FROM pg_sleep($2)", note, mathrand.Float64()*0.004)
			return err
		}
	}
	// Whoever has it by now: where that isn't this attempt any more, it can't finish.
	number := fmt.Sprint(rowOf(t, effects.pool, key).AttemptNo, " ")
	output, err := a.Step(t.Context(), "step", func(tx pgx.Tx) ([]byte, error) {
		return []byte(rand.Text()), write("step " + key.Key)(tx)
	})
	if err != nil {
		return err
	}
	if mathrand.IntN(4) == 0 {
		stop()
		if mathrand.IntN(2) == 0 {
			_, err := a.Step(t.Context(), "late", func(pgx.Tx) ([]byte, error) { return nil, nil })
			return err
		}
		return a.Finish(t.Context(), idem.Reply{Status: 200, Body: []byte(number + rand.Text())}, write("finish "+key.Key))
	}
	switch mathrand.IntN(4) {
	case 0:
		return nil // crash
	case 1:
		return a.Release(t.Context())
	default:
		return a.Finish(t.Context(), idem.Reply{Status: 200, Body: append([]byte(number+rand.Text()), output...)}, write("finish "+key.Key))
	}
}
