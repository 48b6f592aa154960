package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestTx_CantBeEndedByTheFunction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		got, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
				t.Errorf("%s: Commit or Rollback was let through", way)
			}
			return effects.write(key.Key, created, nil)(ctx, idem.Tx(ctx))
		})
		wantResult(t, got, err, created, false)
		effects.want(t, key.Key, 1)
	}
	if idem.Tx(t.Context()) != nil {
		t.Error("Tx outside of a call is not nil")
	}
}

// Also not by its text: COMMIT is refused by the trigger, and after ROLLBACK nothing
// is stored.
func TestTx_EndedByItsTextStoresNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		for _, end := range []string{"COMMIT", "ROLLBACK", "ROLLBACK; BEGIN", "COMMIT; BEGIN"} {
			for _, final := range []error{nil, idem.Final(created), idem.FinalKeep(created)} {
				key := newKey(t)
				_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
					_, err := effects.write(key.Key, created, nil)(ctx, tx)
					if err != nil {
						t.Error(err)
					}
					_, _ = tx.Exec(ctx, end)
					return created, final
				})
				if err == nil {
					t.Errorf("%s, %s, %v: no error", way, end, final)
				}
				effects.want(t, key.Key, 0)
				wantFree(t, s, key)
			}
		}
	}
}

func TestTx_CommitOfAClaimThatRunsIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	for name, sql := range map[string]string{
		"insert": `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, created_at, expires_at)
			SELECT operation, scope, key || '-2', 1, fingerprint, 1, gen_random_uuid(), 1, created_at, expires_at FROM gatepost.idempotency_keys WHERE key = $1`,
		"update": `UPDATE gatepost.idempotency_keys SET state = 1 WHERE key = $1`,
	} {
		key := newKey(t)
		rowState{state: 2, expires: "1 h"}.put(t, pool, key)
		_, err := pool.Exec(t.Context(), sql, key.Key)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "GP002" || e.Hint == "" {
			t.Errorf("%s: %v, want SQLSTATE GP002", name, err)
		}
	}
}

func TestTx_SetConstraintsImmediateIsAnErrorThatSaysWhy(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`)
			return created, err
		})
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "GP002" {
			t.Errorf("%s: %v, want SQLSTATE GP002", way, err)
		}
		wantFree(t, s, key)
	}
}

func TestTx_NestsAndIsClosedWithTheCall(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		var kept, nested pgx.Tx
		got, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			kept = tx
			for i, end := range []func(pgx.Tx) error{func(n pgx.Tx) error { return n.Commit(ctx) }, func(n pgx.Tx) error { return n.Rollback(ctx) }} {
				var err error
				if nested, err = tx.Begin(ctx); err != nil {
					return idem.Reply{}, err
				}
				if _, err := effects.write(key.Key, created, nil)(ctx, nested); err != nil {
					return idem.Reply{}, err
				}
				if i == 1 { // rolled back, so the transaction can go on
					_, _ = nested.Exec(ctx, `SELECT 1/0`)
				}
				if err := end(nested); err != nil {
					return idem.Reply{}, err
				}
				if err := nested.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: second end of a nested transaction: %v", way, err)
				}
			}
			return created, nil
		})
		wantResult(t, got, err, created, false)
		effects.want(t, key.Key, 1)
		for _, tx := range []pgx.Tx{kept, nested} {
			_, execErr := tx.Exec(t.Context(), `SELECT 1`)
			_, queryErr := tx.Query(t.Context(), `SELECT 1`)
			_, copyErr := tx.CopyFrom(t.Context(), pgx.Identifier{"a"}, nil, nil)
			_, prepareErr := tx.Prepare(t.Context(), "a", "SELECT 1")
			_, beginErr := tx.Begin(t.Context())
			for _, err := range []error{
				execErr, queryErr, copyErr, prepareErr, beginErr,
				tx.QueryRow(t.Context(), `SELECT 1`).Scan(nil), tx.SendBatch(t.Context(), &pgx.Batch{}).Close(),
			} {
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: used after the call: %v, want pgx.ErrTxClosed", way, err)
				}
			}
		}
	}
}

func TestTx_ResultLeftUnread(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		for _, sql := range []string{"SELECT generate_series(1, 10)", "INSERT INTO " + effects.name + " VALUES ($1) RETURNING note"} {
			key := newKey(t)
			got, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				args := []any{key.Key}
				if sql[0] == 'S' {
					args = nil
				}
				_, err := tx.Query(ctx, sql, args...)
				return created, err
			})
			wantResult(t, got, err, created, false)
			effects.want(t, key.Key, map[bool]int{sql[0] == 'I': 1}[true])
		}
		key := newKey(t)
		if !strings.HasPrefix(way, "Do ") {
			continue // the connection is the caller's
		}
		runs := 0
		_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			runs++
			tx.QueryRow(ctx, `SELECT 1`) // without Scan
			return created, nil
		})
		if err == nil || errors.Is(err, idem.ErrUnavailable) || runs != 1 { // another try would be no better
			t.Errorf("%s: a row left unread: %v after %d runs", way, err, runs)
		}
		wantFreeSoon(t, s, key)
	}
}
