package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestStep_RunsOnceOverAttempts(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	for attempt, order := range [][]string{{"a", "b"}, {"b", "a", "c"}, {"c", "a", "b"}} {
		a := claim(t, holder(t, pool, idem.Config{}), key)
		for _, name := range order {
			got, err := a.Step(t.Context(), name, func(tx pgx.Tx) ([]byte, error) { return []byte("of " + name), insert(tx) })
			if err != nil || string(got) != "of "+name {
				t.Errorf("attempt %d, step %s: %q, %v", attempt, name, got, err)
			}
		}
		if attempt == 0 {
			release(t, a)
		} else {
			lapse(t, pool, key)
		}
	}
	if count() != 3 || steps(t, pool, key) != 3 {
		t.Errorf("%d effects, %d steps, want 3", count(), steps(t, pool, key))
	}
}

func TestStep_GivesItsOutputBackByteForByte(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	for name, output := range map[string][]byte{"nil": nil, "empty": {}, "zero": {0}, "binary": []byte("\xff\x00\\x")} {
		for range 2 {
			got, err := a.Step(t.Context(), name, func(pgx.Tx) ([]byte, error) { return output, nil })
			if err != nil || got == nil || !bytes.Equal(got, output) {
				t.Errorf("%s: got %#v, %v; want %#v", name, got, err, output)
			}
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 201), "\xff", "a\x00"} {
		_, err := a.Step(t.Context(), name, nil)
		wantErr(t, err, idem.ErrInvalidKey)
	}
}

func TestStep_LeavesNothingWhenItsFunctionFails(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	broken := errors.New("broken")
	_, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return []byte("x"), errors.Join(insert(tx), broken) })
	wantErr(t, err, broken)
	if count() != 0 || steps(t, pool, key) != 0 || a.Err() != nil {
		t.Fatalf("%d effects, %d steps, Err %v", count(), steps(t, pool, key), a.Err())
	}
	if got, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return []byte("y"), insert(tx) }); err != nil || string(got) != "y" {
		t.Errorf("again: %q, %v", got, err)
	}
}

func TestStep_IsRefusedAfterTheLease(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	if _, err := a.Step(t.Context(), "first", func(pgx.Tx) ([]byte, error) { return []byte("x"), nil }); err != nil {
		t.Fatal(err)
	}
	lapse(t, pool, key)
	_, err := a.Step(t.Context(), "second", func(pgx.Tx) ([]byte, error) { t.Error("ran"); return nil, nil })
	wantErr(t, err, idem.ErrLapsed)
	wantErr(t, a.Err(), idem.ErrLapsed)
	claim(t, holder(t, pool, idem.Config{}), key)
	_, err = a.Step(t.Context(), "second", func(pgx.Tx) ([]byte, error) { t.Error("ran"); return nil, nil })
	wantErr(t, err, idem.ErrFenced)
}

// Whoever waited for the row's lock past the end of the lease has lapsed.
func TestStep_ReadsTheClockAfterItsLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := holder(t, pool, idem.Config{Lease: 2 * time.Minute})
	for lasts := time.Second; lasts < 20*time.Second; lasts *= 2 { // longer where it lapses before anybody waits
		key := newKey(t)
		a := claim(t, s, key)
		change(t, pool, key, fmt.Sprintf("lease_until = clock_timestamp() + interval '%f s'", lasts.Seconds()))
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.idempotency_keys WHERE operation = $1 AND scope = $2 AND key = $3 FOR UPDATE`, key.Operation, key.Scope, key.Key); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := a.Step(t.Context(), "s", func(pgx.Tx) ([]byte, error) { return nil, nil })
			result <- err
		}()
		waitUntil(t, "a wait for the lock, or its end", func() bool { return len(result) > 0 || isBlockedBy(t, pool, pgtest.Backend(t, tx)) })
		inTime := len(result) == 0 && rowOf(t, pool, key).LeaseLeft > 0
		if inTime {
			waitUntil(t, "the end of the lease", func() bool { return rowOf(t, pool, key).LeaseLeft < 0 })
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-result; inTime {
			wantErr(t, err, idem.ErrLapsed)
			return
		}
	}
	t.Error("it never waited before the lease lapsed")
}

// While a step is open nobody takes the key over, however long ago its lease lapsed:
// so what it writes is written before the next attempt begins, or not at all.
func TestStep_HoldsATakeoverOff(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.ReadCommitted(t), newKey(t)
	insert, count := notes(t, pool)
	next := holder(t, pool, idem.Config{})
	a := claim(t, holder(t, pool, idem.Config{}), key)
	_, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) {
		lapse(t, pool, key)
		if got := begins(t, next, key, fp); got != isBusy {
			t.Errorf("a takeover while the step is open: %s, want %s", got, isBusy)
		}
		if err := next.Forget(t.Context(), key); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("Forget while the step is open: %v", err)
		}
		return []byte("x"), insert(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	b := claim(t, next, key)
	if got, err := b.Step(t.Context(), "s", nil); err != nil || string(got) != "x" || count() != 1 {
		t.Errorf("the next attempt: %q, %v, %d effects", got, err, count())
	}
}

// Once the key is taken over nothing of the stale attempt appears any more, however
// takeovers and steps race.
// What a step of a released attempt wrote is committed before anybody else runs, or not
// at all: a claim in transaction mode waits for it too.
func TestStep_HoldsDoOffAfterARelease(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.ReadCommitted(t), newKey(t)
	insert, count := notes(t, pool)
	s := holder(t, pool, idem.Config{})
	a := claim(t, s, key)
	ran := func(context.Context, pgx.Tx) (idem.Reply, error) { return answer, nil }
	waited := make(chan error, 1)
	_, err := a.Step(t.Context(), "open", func(tx pgx.Tx) ([]byte, error) {
		release(t, a)
		_, err := s.Do(t.Context(), key, fp, nil, ran)
		wantErr(t, err, idem.ErrInProgress)
		go func() {
			_, err := s.Do(t.Context(), key, fp, &idem.Options{Wait: 20 * time.Second}, func(context.Context, pgx.Tx) (idem.Reply, error) {
				if count() != 1 {
					t.Error("the step isn't committed")
				}
				return answer, nil
			})
			waited <- err
		}()
		waitBlockedBy(t, pool, pgtest.Backend(t, tx))
		return nil, insert(tx)
	})
	if err != nil && !errors.Is(err, idem.ErrEnded) {
		t.Errorf("Step: %v", err)
	}
	if stored := steps(t, pool, key); stored != count() {
		t.Errorf("%d steps are stored, with %d effects", stored, count())
	}
	if err := <-waited; err != nil {
		t.Errorf("Do that waited for the step: %v", err)
	}
}

// A key that is used anew, when its record has expired, finds no step of before.
func TestStep_GoesWithTheOperationThatDoTookOver(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{})
	a := claim(t, s, key)
	if _, err := a.Step(t.Context(), "s", func(pgx.Tx) ([]byte, error) { return []byte("old"), nil }); err != nil {
		t.Fatal(err)
	}
	release(t, a)
	if _, err := s.Do(t.Context(), key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return answer, nil }); err != nil {
		t.Fatal(err)
	}
	change(t, pool, key, "expires_at = clock_timestamp() - interval '1 s'")
	got, err := claim(t, s, key).Step(t.Context(), "s", func(pgx.Tx) ([]byte, error) { return []byte("new"), nil })
	if err != nil || string(got) != "new" {
		t.Errorf("the step gave %q, %v", got, err)
	}
}

func TestStep_OfAStaleAttemptNeverCommits(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	effects := table(t, pool, "attempt int").Sanitize()
	of := func(n int) int {
		return value[int](t, pool, "SELECT count(*) FROM "+effects+" WHERE attempt = $1", n)
	}
	var stored, refused atomic.Int32
	var steps sync.WaitGroup
	seen := map[int]int{} // effects of each attempt, when it was taken over
	for n := range 30 {
		var a *idem.Attempt
		waitUntil(t, "a takeover", func() bool {
			if n > 0 {
				lapse(t, pool, key)
			}
			next, err := holder(t, pool, idem.Config{}).Begin(t.Context(), key, fp)
			a = next
			return err == nil
		})
		if n > 0 {
			seen[n-1] = of(n - 1)
		}
		began := stored.Load()
		for i := range 3 {
			steps.Go(func() {
				for j := range 8 {
					_, err := a.Step(t.Context(), fmt.Sprint(n, i, j), func(tx pgx.Tx) ([]byte, error) {
						_, err := tx.Exec(t.Context(), "INSERT INTO "+effects+" SELECT $1 FROM pg_sleep(0.002)", n)
						return nil, err
					})
					switch {
					case err == nil:
						stored.Add(1)
					case errors.Is(err, idem.ErrFenced), errors.Is(err, idem.ErrLapsed):
						refused.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		waitUntil(t, "a step", func() bool { return stored.Load() > began })
	}
	steps.Wait()
	for n, before := range seen {
		if after := of(n); after != before {
			t.Errorf("attempt %d had %d effects when it was taken over, and has %d", n, before, after)
		}
	}
	if refused.Load() == 0 {
		t.Error("no step was refused: it was no race")
	}
}

func TestStep_OfOneNameAtOnceCommitsOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		pool, key := poolWith(t, pgtest.URL(t), setting("default_transaction_isolation", level), maxConns(8)), newKey(t)
		insert, count := notes(t, pool)
		a := claim(t, holder(t, pool, idem.Config{}), key)
		outputs := make(chan string, 8)
		for n := range cap(outputs) {
			go func() {
				got, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return []byte{byte('a' + n)}, insert(tx) })
				if err != nil {
					t.Errorf("%s: %v", level, err)
				}
				outputs <- string(got)
			}()
		}
		first := <-outputs
		for range cap(outputs) - 1 {
			if got := <-outputs; got != first {
				t.Errorf("%s: outputs %q and %q", level, first, got)
			}
		}
		if count() != 1 {
			t.Errorf("%s: %d effects", level, count())
		}
	}
}

// Heartbeats pass an open step, at every isolation level.
func TestStep_LetsHeartbeatsPass(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			// Of its own: at SERIALIZABLE other tests would make it run again.
			pool, key := poolWith(t, pgtest.Database(t), setting("default_transaction_isolation", level)), newKey(t)
			insert, count := notes(t, pool)
			const lease = 6 * time.Second
			a := claim(t, holder(t, pool, idem.Config{Lease: lease}), key)
			runs := 0
			_, err := a.Step(t.Context(), "long", func(tx pgx.Tx) ([]byte, error) {
				runs++
				until := time.Now().Add(lease + lease/4)
				waitUntil(t, "a lease that is renewed", func() bool {
					return time.Now().After(until) && rowOf(t, pool, key).LeaseLeft > lease/4
				})
				return nil, insert(tx)
			})
			if err != nil || a.Err() != nil || count() != 1 || runs != 1 {
				t.Errorf("Step: %v, Err: %v, %d effects, %d runs", err, a.Err(), count(), runs)
			}
		})
	}
}
