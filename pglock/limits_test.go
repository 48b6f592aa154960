package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rule F3: for this transaction only, and only where stricter than what is set.
func TestBeginTx_LimitsTheTransactionAndNothingElse(t *testing.T) {
	t.Parallel()
	names := []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"}
	version := value[int](t, pgtest.Pool(t), `SELECT current_setting('server_version_num')::int`)
	if version >= 170000 {
		names = append(names, "transaction_timeout")
	}
	for before, inside := range map[string]string{"0": "7s", "5s": "5s", "7s": "7s", "1min": "7s"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			change := []func(*pgxpool.Config){maxConns(1)}
			for _, name := range names {
				change = append(change, setting(name, before))
			}
			pool := poolWith(t, pgtest.URL(t), change...)
			c := client(t, pool, pglock.Config{FenceTimeout: 7 * time.Second})
			l := acquire(t, c, pgtest.Name(t), nil)
			check := func(db pglock.DBTX, want string) {
				t.Helper()
				for _, name := range names {
					var got string
					if err := db.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if got != want {
						t.Errorf("%s = %s, want %s", name, got, want)
					}
				}
			}
			for _, level := range levels {
				tx, err := l.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				check(tx, inside)
				commit(t, tx)
				check(pool, before)
			}
		})
	}
}

// A fenced transaction that hangs is ended, however it hangs, and its connection
// doesn't come back to the pool.
func TestInTx_IsEndedAtFenceTimeout(t *testing.T) {
	t.Parallel()
	const limit = 400 * time.Millisecond
	for what, hang := range map[string]func(*testing.T, pgx.Tx, string) error{
		"in pg_sleep": func(t *testing.T, tx pgx.Tx, _ string) error {
			_, err := tx.Exec(t.Context(), `SELECT pg_sleep(30)`)
			return err
		},
		"in a loop of statements": func(t *testing.T, tx pgx.Tx, _ string) error {
			for range 100 {
				if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.05)`); err != nil {
					return err
				}
			}
			return nil
		},
		"in a lock wait": func(t *testing.T, tx pgx.Tx, locked string) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE "+locked)
			return err
		},
		"in the client": func(t *testing.T, tx pgx.Tx, _ string) error {
			pid := int32(pgtest.Backend(t, tx))
			eventually(t, "the end of its connection", 10*time.Second, func() bool {
				return value[int](t, pgtest.Pool(t), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) == 0
			})
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pool := poolWith(t, pgtest.URL(t), maxConns(2))
			locked, name := table(t, pool), pgtest.Name(t)
			other := begin(t, pool, pgx.TxOptions{})
			if _, err := other.Exec(t.Context(), "LOCK TABLE "+locked); err != nil {
				t.Fatal(err)
			}
			c := client(t, pool, pglock.Config{FenceTimeout: limit})
			l := acquire(t, c, name, nil)
			began := time.Now()
			err := l.InTx(t.Context(), func(tx pgx.Tx) error { return hang(t, tx, locked) })
			wantErr(t, err, pglock.ErrFenceTimeout)
			if took := time.Since(began); took > limit+5*time.Second {
				t.Errorf("took %s", took)
			}
			expire(t, pool, name) // the row is free of the fence
			eventually(t, "takeover", 5*time.Second, func() bool {
				_, err := c.TryAcquire(t.Context(), name, nil)
				return err == nil
			})
			for range 3 {
				if !value[bool](t, pool, `SELECT pg_current_xact_id_if_assigned() IS NULL`) {
					t.Error("a connection came back with its transaction")
				}
			}
		})
	}
}

// The beginning is bounded too: the server may have given the lock long before
// its answer arrives.
func TestBeginTx_IsBoundedWhileItWaits(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{FenceTimeout: 200 * time.Millisecond}), name, nil)
	lockRow(t, pool, name)
	_, err := l.BeginTx(t.Context(), pgx.TxOptions{})
	if state := sqlState(err); !errors.Is(err, pglock.ErrFenceTimeout) && state != "55P03" {
		t.Errorf("BeginTx: %v", err)
	}
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

// A watchdog that fires while a transaction ends must not cut the connection
// under whoever has it next.
func TestInTx_WatchdogNeverCutsAConnectionThatWasGivenBack(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	c := client(t, pool, pglock.Config{TTL: time.Minute, FenceTimeout: 20 * time.Millisecond})
	l := acquire(t, c, pgtest.Name(t), nil)
	for i := range 40 {
		end := time.Now().Add(19*time.Millisecond + time.Duration(i)*30*time.Microsecond)
		err := l.InTx(t.Context(), func(pgx.Tx) error {
			for time.Now().Before(end) { // a sleep is not exact enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, pglock.ErrFenceTimeout) {
			t.Fatalf("InTx: %v", err)
		}
		if err := pool.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)); err != nil {
			t.Fatalf("the next user of the connection: %v", err)
		}
	}
}

// Nor after a refusal: the watch ends with it. One that a busy machine finds too late is
// asked for again, with more time.
func TestInTx_WatchdogEndsWithARefusal(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	limit, err := 500*time.Millisecond, error(pglock.ErrFenceTimeout)
	for ; errors.Is(err, pglock.ErrFenceTimeout) && limit < 10*time.Second; limit *= 2 {
		c := client(t, pool, pglock.Config{TTL: time.Minute, FenceTimeout: limit})
		l := acquire(t, c, pgtest.Name(t), nil)
		release(t, l)
		err = c.InTx(t.Context(), l.Sequencer(), nothing)
	}
	wantErr(t, err, pglock.ErrReleased)
	if _, err := pool.Exec(t.Context(), `SELECT pg_sleep($1::float8)`, (limit/2 + 100*time.Millisecond).Seconds()); err != nil {
		t.Errorf("the next user of the connection: %v", err)
	}
}
