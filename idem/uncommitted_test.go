package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// While the first one runs, its row can't be seen, so a second one with another
// fingerprint is told the same.
func TestUncommitted_FailFastIsInProgressAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := s.DoTx(t.Context(), tx, key, fp, nil, reply); err != nil {
			t.Fatal(err)
		}
		for _, f := range []idem.Fingerprint{fp, idem.FingerprintOf([]byte("other"))} {
			began := time.Now()
			_, err := call(key, f, nil, unreached(t))
			if e, ok := errors.AsType[*idem.InProgressError](err); !ok || e.RetryAfter != 0 {
				t.Errorf("%s: %v, want InProgressError", way, err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s: took %s", way, took)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantFree(t, s, key)
	}
}

// The lock says that it is running: it is asked, and not waited for, not even for a moment.
func TestUncommitted_FailFastWaitsForNoLock(t *testing.T) {
	t.Parallel()
	var waits lockTimeouts
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &waits })
	s, key, holder := store(t, pool, idem.Config{}), newKey(t), begin(t, pool, pgx.TxOptions{})
	if _, err := s.DoTx(t.Context(), holder, key, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	for way, call := range waysToCall(t, pool, s) {
		_, err := call(key, fp, nil, unreached(t))
		if n := waits.n.Load(); !errors.Is(err, idem.ErrInProgress) || n != 0 {
			t.Fatalf("%s: %v, and %d statements waited for a lock", way, err, n)
		}
	}
}

// The lock says that it is running; nobody has to wait for its row.
func TestUncommitted_FailFastDoesNotTouchTheRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	first, second := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	if _, err := s.DoTx(t.Context(), first, key, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	_, err := s.DoTx(t.Context(), second, key, fp, nil, unreached(t))
	wantErr(t, err, idem.ErrInProgress)
	var xid *string
	if err := second.QueryRow(t.Context(), `SELECT pg_current_xact_id_if_assigned()::text`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	if xid != nil {
		t.Error("a transaction id was used up")
	}
}

func TestUncommitted_WaitEndsInTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := s.DoTx(t.Context(), tx, key, fp, nil, reply); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := call(key, fp, &idem.Options{Wait: 200 * time.Millisecond}, unreached(t))
		if took := time.Since(began); !errors.Is(err, idem.ErrInProgress) || took < 200*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s: %v after %s, want ErrInProgress after 200 ms", way, err, took)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting starts a call while another transaction has the key, and returns what it
// came to once that transaction has ended.
func waiting(t *testing.T, s *idem.Store, key idem.Key, holder pgx.Tx, end func(context.Context) error, call func() (idem.Result, error)) (idem.Result, error) {
	t.Helper()
	pool := pgtest.Pool(t)
	if _, err := s.DoTx(t.Context(), holder, key, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	var got idem.Result
	result := make(chan error, 1)
	go func() {
		var err error
		got, err = call()
		result <- err
	}()
	waitBlocked(t, pool, holder)
	if err := end(t.Context()); err != nil {
		t.Error(err)
	}
	return got, <-result
}

func TestUncommitted_WaitIsAnsweredAsCommitted(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := ownDatabase(t, fmt.Sprintf("default_transaction_isolation = '%s'", level))
			s, o := store(t, pool, idem.Config{}), &idem.Options{Wait: 20 * time.Second}
			for way, call := range waysToCall(t, pool, s) {
				// An old snapshot can't see what it waited for.
				old := way == "DoTx at repeatable read" || way == "DoTx at serializable"

				key, holder := newKey(t), begin(t, pool, pgx.TxOptions{})
				got, err := waiting(t, s, key, holder, holder.Commit, func() (idem.Result, error) { return call(key, fp, o, unreached(t)) })
				if old {
					wantErr(t, err, idem.ErrRetryTx)
				} else {
					wantResult(t, got, err, created, true)
				}

				key, holder = newKey(t), begin(t, pool, pgx.TxOptions{})
				_, err = waiting(t, s, key, holder, holder.Commit, func() (idem.Result, error) {
					return call(key, idem.FingerprintOf([]byte("other")), o, unreached(t))
				})
				if want := idem.ErrMismatch; !errors.Is(err, want) && (!old || !errors.Is(err, idem.ErrRetryTx)) {
					t.Errorf("%s: %v, want %v", way, err, want)
				}

				key, holder = newKey(t), begin(t, pool, pgx.TxOptions{})
				got, err = waiting(t, s, key, holder, holder.Rollback, func() (idem.Result, error) {
					return call(key, fp, o, reply)
				})
				wantResult(t, got, err, created, false)
			}
		})
	}
}

// A row that was committed after the claim looked is read again, and decides.
func TestUncommitted_RowOfAnyKindDecidesAfterTheWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for _, cell := range cells {
		if cell.row == nil {
			continue
		}
		for f, want := range map[idem.Fingerprint]event{fp: cell.same, idem.FingerprintOf(nil): cell.other} {
			key, tx := newKey(t), begin(t, pool, pgx.TxOptions{})
			cell.row.put(t, tx, key)
			result := make(chan event, 1)
			go func() {
				got, err := s.Do(t.Context(), key, f, &idem.Options{Wait: 20 * time.Second}, reply)
				result <- eventOf(got, err)
			}()
			waitBlocked(t, pool, tx)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-result; got != want {
				t.Errorf("%s, same = %t: %s, want %s", cell.name, f == fp, got, want)
			}
		}
	}
}

// Somebody who writes to the row without the key's lock is waited for too, but not
// for long by FailFast.
func TestUncommitted_RowThatSomebodyElseWritesIsInProgress(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	expired := rowState{state: 2, expires: "-1 s"}
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
		for what, write := range map[string]func(tx pgx.Tx, key idem.Key){
			"locked": func(tx pgx.Tx, key idem.Key) {
				expired.put(t, pool, key)
				if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.idempotency_keys WHERE key = $1 FOR UPDATE`, key.Key); err != nil {
					t.Fatal(err)
				}
			},
			"inserted": func(tx pgx.Tx, key idem.Key) { expired.put(t, tx, key) },
		} {
			key, tx := newKey(t), begin(t, pool, pgx.TxOptions{})
			write(tx, key)
			began := time.Now()
			_, err := call(key, fp, nil, unreached(t))
			if took := time.Since(began); !errors.Is(err, idem.ErrInProgress) || took > 3*time.Second {
				t.Errorf("%s, %s: %v after %s, want ErrInProgress", way, what, err, took)
			}
			result := make(chan error, 1)
			go func() {
				_, err := call(key, fp, &idem.Options{Wait: 20 * time.Second}, reply)
				result <- err
			}()
			waitBlocked(t, pool, tx)
			if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.2)`); err != nil { // longer than FailFast waits
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-result; err != nil {
				t.Errorf("%s, %s: waited for it: %v", way, what, err)
			}
		}
	}
}

// The same key inside of itself can't be had, and doesn't hang.
func TestUncommitted_KeyInItselfIsInProgress(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{Retention: time.Second})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			o := &idem.Options{Wait: 20 * time.Millisecond}
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(1.1)`); err != nil { // its record would have expired
				return idem.Reply{}, err
			}
			if _, err := s.DoTx(ctx, tx, key, fp, o, unreached(t)); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("%s: DoTx in it: %v, want ErrInProgress", way, err)
			}
			if _, err := s.Do(ctx, key, fp, o, unreached(t)); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("%s: Do in it: %v, want ErrInProgress", way, err)
			}
			return created, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
