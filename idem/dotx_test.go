package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func reply(context.Context, pgx.Tx) (idem.Reply, error) { return created, nil }

// lockTimeout is what the transaction has.
func lockTimeout(t *testing.T, tx pgx.Tx) string {
	t.Helper()
	var s string
	if err := tx.QueryRow(t.Context(), `SELECT current_setting('lock_timeout')`).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDoTx_LeavesLockTimeoutAsItWas(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for _, set := range []string{"", "SET LOCAL lock_timeout = '7s'", "SET LOCAL lock_timeout = '10ms'"} {
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := tx.Exec(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		want := lockTimeout(t, tx)
		busy, done := newKey(t), newKey(t)
		other := begin(t, pool, pgx.TxOptions{})
		if _, err := s.DoTx(t.Context(), other, busy, fp, nil, reply); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			what string
			call func() error
		}{
			{"claim", func() error { _, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, reply); return err }},
			{"claim 2", func() error {
				_, err := s.DoTx(t.Context(), tx, done, fp, &idem.Options{Wait: time.Second}, reply)
				return err
			}},
			{"replay", func() error { _, err := s.DoTx(t.Context(), tx, done, fp, nil, unreached(t)); return err }},
			{"busy", func() error { _, err := s.DoTx(t.Context(), tx, busy, fp, nil, unreached(t)); return err }},
			{"waits", func() error {
				_, err := s.DoTx(t.Context(), tx, busy, fp, &idem.Options{Wait: 20 * time.Millisecond}, unreached(t))
				return err
			}},
			{"error", func() error {
				_, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{}, errBusiness })
				return err
			}},
			{"in fn", func() error {
				_, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, func(_ context.Context, tx pgx.Tx) (idem.Reply, error) {
					if got := lockTimeout(t, tx); got != want {
						t.Errorf("lock_timeout is %s in the function, want %s", got, want)
					}
					return created, nil
				})
				return err
			}},
		} {
			if err := step.call(); err != nil && !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, errBusiness) {
				t.Errorf("%s: %v", step.what, err)
			}
			if got := lockTimeout(t, tx); got != want {
				t.Errorf("%s: lock_timeout is %s afterwards, want %s", step.what, got, want)
			}
		}
		for _, tx := range []pgx.Tx{tx, other} {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDo_RunsUnderTheSessionsLockTimeout(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t, "lock_timeout = '7s'")
	s := store(t, pool, idem.Config{})
	for _, o := range []*idem.Options{nil, {Wait: time.Minute}} {
		_, err := s.Do(t.Context(), newKey(t), fp, o, func(_ context.Context, tx pgx.Tx) (idem.Reply, error) {
			if got := lockTimeout(t, tx); got != "7s" {
				t.Errorf("lock_timeout is %s in the function, want 7s", got)
			}
			return created, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	// And after a wait, when the claim is a later statement's.
	key, holder := newKey(t), begin(t, pool, pgx.TxOptions{})
	_, err := waiting(t, s, key, holder, holder.Rollback, func() (idem.Result, error) {
		return s.Do(t.Context(), key, fp, &idem.Options{Wait: time.Minute}, func(_ context.Context, tx pgx.Tx) (idem.Reply, error) {
			if got := lockTimeout(t, tx); got != "7s" {
				t.Errorf("lock_timeout is %s in the function, want 7s", got)
			}
			return created, nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// After a wait, Final undoes the effect and not the claim, too.
func TestDo_FinalAfterAWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		if !strings.HasPrefix(way, "Do ") && way != "DoTx at read committed" {
			continue // an old snapshot
		}
		key, holder := newKey(t), begin(t, pool, pgx.TxOptions{})
		got, err := waiting(t, s, key, holder, holder.Rollback, func() (idem.Result, error) {
			return call(key, fp, &idem.Options{Wait: time.Minute}, effects.write(key.Key, idem.Reply{}, idem.Final(created)))
		})
		wantResult(t, got, err, created, false)
		effects.want(t, key.Key, 0)
		wantReplay(t, s, key, created)
	}
}

func TestDoTx_CommitsWithTheCaller(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for _, level := range levels {
		first, second, third := newKey(t), newKey(t), newKey(t)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := s.DoTx(t.Context(), tx, first, fp, nil, effects.write(first.Key, created, nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DoTx(t.Context(), tx, second, fp, nil, effects.write(second.Key, created, errBusiness)); !errors.Is(err, errBusiness) {
			t.Fatal(err)
		}
		got, err := s.DoTx(t.Context(), tx, third, fp, nil, effects.write(third.Key, idem.Reply{}, idem.Final(created)))
		wantResult(t, got, err, created, false)
		got, err = s.DoTx(t.Context(), tx, first, fp, nil, unreached(t))
		wantResult(t, got, err, created, true)
		if _, err := tx.Exec(t.Context(), "INSERT INTO "+effects.name+" VALUES ($1)", "caller "+first.Key); err != nil {
			t.Errorf("the caller's transaction: %v", err)
		}
		effects.want(t, first.Key, 0) // not yet
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for note, n := range map[string]int{first.Key: 1, second.Key: 0, third.Key: 0, "caller " + first.Key: 1} {
			effects.want(t, note, n)
		}
		wantReplay(t, s, first, created)
		wantFree(t, s, second)
		wantReplay(t, s, third, created)
	}
}

func TestDoTx_CallersRollbackFreesTheKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	whole, part := newKey(t), newKey(t)
	tx := begin(t, pool, pgx.TxOptions{})
	nested, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DoTx(t.Context(), nested, part, fp, nil, effects.write(part.Key, created, nil)); err != nil {
		t.Fatal(err)
	}
	if err := nested.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Do(t.Context(), part, fp, nil, effects.write(part.Key, created, nil)) // already
	wantResult(t, got, err, created, false)
	if _, err := s.DoTx(t.Context(), tx, whole, fp, nil, effects.write(whole.Key, created, nil)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	effects.want(t, part.Key, 1)
	effects.want(t, whole.Key, 0)
	wantFree(t, s, whole)
}

func TestDoTx_UsesTheCallersConnectionOnly(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := store(t, pool, idem.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	key := newKey(t)
	for _, want := range []bool{false, true} {
		got, err := inTx(ctx, pool, pgx.TxOptions{}, s, key, fp, &idem.Options{Wait: time.Second}, reply)
		wantResult(t, got, err, created, want)
	}
}

func TestDoTx_RefusesATransactionThatIsOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("no error")
	}
	if _, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, unreached(t)); err == nil {
		t.Error("an aborted transaction: no error")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, unreached(t))
	wantErr(t, err, pgx.ErrTxClosed)
}

// What a snapshot sees is what it replays; what it can't see is the caller's to
// repeat.
func TestDoTx_InAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t)
	s := store(t, pool, idem.Config{})
	for _, level := range levels[1:] {
		seen, unseen := newKey(t), newKey(t)
		wantFree(t, s, seen)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		_ = lockTimeout(t, tx) // takes the snapshot
		wantFree(t, s, unseen)
		got, err := s.DoTx(t.Context(), tx, seen, fp, nil, unreached(t))
		wantResult(t, got, err, idem.Reply{}, true)
		_, err = s.DoTx(t.Context(), tx, seen, idem.FingerprintOf(nil), nil, unreached(t))
		wantErr(t, err, idem.ErrMismatch)
		_, err = s.DoTx(t.Context(), tx, unseen, fp, nil, unreached(t))
		wantErr(t, err, idem.ErrRetryTx)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoTx_ReplaysInAReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	wantFree(t, s, key)
	tx := begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	got, err := s.DoTx(t.Context(), tx, key, fp, nil, unreached(t))
	wantResult(t, got, err, idem.Reply{}, true)
	if _, err := s.DoTx(t.Context(), tx, newKey(t), fp, nil, unreached(t)); err == nil {
		t.Error("a claim in it: no error")
	}
}

// lateTx sends a statement that fails behind each batch.
type lateTx struct{ pgx.Tx }

func (tx lateTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	b.Queue(`SELECT 1/0`)
	return tx.Tx.SendBatch(ctx, b)
}

// An error behind a claim counts, whether there was a claim or not.
func TestDoTx_ErrorBehindTheClaimCounts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, key, free := store(t, pool, idem.Config{}), newKey(t), newKey(t)
	holder, tx := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	if _, err := s.DoTx(t.Context(), holder, key, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	for _, k := range []idem.Key{key, free} {
		_, err := s.DoTx(t.Context(), lateTx{tx}, k, fp, nil, unreached(t))
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "22012" {
			t.Errorf("%v, want the error of the statement behind", err)
		}
	}
}
