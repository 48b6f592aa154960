package pglock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The classic: A fences and pauses before its write, B takes over. B waits for
// A's commit and sees its write. A plain SELECT as the fence fails here, and so
// does a takeover that isn't a key update.
func TestFence_TakeoverWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range levels {
		for _, own := range []bool{false, true} {
			what := "BeginTx "
			if own {
				what = "Fence "
			}
			t.Run(what+string(level), func(t *testing.T) {
				t.Parallel()
				name, table := pgtest.Name(t), table(t, pool)
				a, b := asleep(t, pool), asleep(t, pool)
				l := acquire(t, a, name, nil)
				tx := fenced(t, pool, l, own, level)
				expire(t, pool, name)

				_, err := b.TryAcquire(t.Context(), name, nil)
				held, ok := errors.AsType[*pglock.HeldError](err)
				if !ok || !held.Fenced || held.Token != l.Token() {
					t.Fatalf("takeover: %v; want a *HeldError with Fenced", err)
				}
				seen := make(chan int, 1)
				go func() {
					next, err := b.Acquire(context.WithoutCancel(t.Context()), name, nil)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						seen <- -1
						return
					}
					n := -1
					if err := next.InTx(context.WithoutCancel(t.Context()), func(tx pgx.Tx) error {
						return tx.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM "+table).Scan(&n)
					}); err != nil {
						t.Errorf("InTx: %v", err)
					}
					seen <- n
				}()
				if err := insert(t.Context(), tx, table, "A"); err != nil {
					t.Fatal(err)
				}
				select {
				case <-seen:
					t.Error("granted while A's fenced transaction was open")
				case <-time.After(100 * time.Millisecond): // several polls
				}
				commit(t, tx)
				if n := <-seen; n != 1 {
					t.Errorf("the next holder saw %d rows, want A's", n)
				}
			})
		}
	}
}

// A fence is shared: those who write under one token, the holder and whom it gave its
// sequencer to, don't wait for each other.
func TestFence_WritersWithOneTokenRunSideBySide(t *testing.T) {
	t.Parallel()
	const writers = 16
	pool := poolWith(t, pgtest.URL(t), maxConns(writers+1))
	name, table := pgtest.Name(t), table(t, pool)
	l := acquire(t, client(t, pool, pglock.Config{RenewEvery: often}), name, nil)
	workers := asleep(t, pool)
	var inside atomic.Int32
	open := make(chan struct{}) // all of them, at the same time
	write := func(tx pgx.Tx) error {
		if inside.Add(1) == writers {
			close(open)
		}
		select {
		case <-open:
			return insert(t.Context(), tx, table, "side by side")
		case <-time.After(10 * time.Second):
			return errors.New("the others wait")
		}
	}
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			err := error(nil)
			switch i % 3 {
			case 0:
				err = l.InTx(t.Context(), write)
			case 1:
				err = workers.InTx(t.Context(), l.Sequencer(), write)
			default:
				err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
						return err
					}
					return write(tx)
				})
			}
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := rows(t, pool, table); n != writers {
		t.Errorf("%d rows, want %d", n, writers)
	}
}

// fenced opens a fenced transaction, or fences one of the caller's own.
func fenced(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease, own bool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	opts := pgx.TxOptions{IsoLevel: level}
	if !own {
		tx, err := l.BeginTx(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	tx := begin(t, pool, opts)
	if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestRelease_PassesAnOpenFence(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := asleep(t, pool)
	l := acquire(t, c, name, nil)
	tx := fenced(t, pool, l, true, pgx.ReadCommitted)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Fatalf("Release: %v", err)
	}
	_, err := c.TryAcquire(ctx, name, nil) // it doesn't wait either
	if held, ok := errors.AsType[*pglock.HeldError](err); !ok || !held.Fenced || held.ExpiresAt.After(clock(t, pool)) {
		t.Fatalf("%+v; want a *HeldError with Fenced, over since the release", err)
	}
	commit(t, tx)
	acquire(t, c, name, nil)
}

// A takeover doesn't wait because acquisitions are polite and lock FOR UPDATE: a
// new token is a key update, whoever makes it. That is what the second unique
// index is for.
func TestFence_HoldsOffAnyChangeOfTheToken(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	tx := fenced(t, pool, acquire(t, asleep(t, pool), name, nil), false, pgx.ReadCommitted)
	other := begin(t, pool, pgx.TxOptions{})
	if _, err := other.Exec(t.Context(), `SET LOCAL lock_timeout = '50ms'`); err != nil {
		t.Fatal(err)
	}
	_, err := other.Exec(t.Context(), `UPDATE gatepost.leases SET token = token + 1 WHERE name = $1`, name)
	if sqlState(err) != "55P03" {
		t.Errorf("UPDATE of the token under a fence: %v, want it to wait", err)
	}
	commit(t, tx)
}

// Rule T: the fence waits for whoever has the row, and then reads the clock.
func TestFence_ExpiryIsReadAfterTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, fence := range map[string]func(*pglock.Lease) error{
		"BeginTx": func(l *pglock.Lease) error { return l.InTx(context.WithoutCancel(t.Context()), nothing) },
		"Fence": func(l *pglock.Lease) error {
			return pgx.BeginFunc(context.WithoutCancel(t.Context()), pool, func(tx pgx.Tx) error {
				return pglock.Fence(context.WithoutCancel(t.Context()), tx, l.Sequencer())
			})
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			_, err := waitsUntilItLapsed(t, pool, func(l *pglock.Lease) func() error {
				return func() error { return fence(l) }
			})
			wantErr(t, err, pglock.ErrExpired)
		})
	}
}

// Rule F6: a fence in a transaction with an old snapshot.
func TestFence_InAnOldSnapshotRefusesASupersededToken(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		name := pgtest.Name(t)
		c := asleep(t, pool)
		l := acquire(t, c, name, nil)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases`); err != nil {
			t.Fatal(err)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
			t.Errorf("%s: after a renewal: %v", level, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}

		tx = begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases`); err != nil {
			t.Fatal(err)
		}
		expire(t, pool, name)
		acquire(t, c, name, nil)
		err := pglock.Fence(t.Context(), tx, l.Sequencer())
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrSuperseded)
	}
}
