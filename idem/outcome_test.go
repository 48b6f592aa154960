package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestOutcome_ReplyKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		for what, o := range map[string]struct {
			end  error
			rows int
		}{"reply": {nil, 1}, "Final": {idem.Final(created), 0}, "FinalKeep": {fmt.Errorf("wrapped: %w", idem.FinalKeep(created)), 1}} {
			t.Run(way+", "+what, func(t *testing.T) {
				key := newKey(t)
				reply := created
				if o.end != nil {
					reply = idem.Reply{Status: 500} // doesn't count
				}
				got, err := call(key, fp, nil, effects.write(key.Key, reply, o.end))
				wantResult(t, got, err, created, false)
				effects.want(t, key.Key, o.rows)
				wantReplay(t, s, key, created)
			})
		}
	}
}

var errBusiness = errors.New("business")

func TestOutcome_ErrorLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		_, err := call(key, fp, nil, effects.write(key.Key, created, errBusiness))
		if !errors.Is(err, errBusiness) {
			t.Errorf("%s: %v, want the function's error", way, err)
		}
		effects.want(t, key.Key, 0)
		wantFree(t, s, key)
	}
}

func TestOutcome_PanicLeavesNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		key, value := newKey(t), &struct{ a int }{1}
		func() {
			defer func() {
				if got := recover(); got != value {
					t.Errorf("%s: recovered %v, want the value of the panic", way, got)
				}
			}()
			_, _ = call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				if _, err := effects.write(key.Key, created, nil)(ctx, tx); err != nil {
					t.Error(err)
				}
				if _, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`); err != nil { // and left unread
					t.Error(err)
				}
				panic(value)
			})
		}()
		effects.want(t, key.Key, 0)
		wantFree(t, s, key)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// What passes is never final: it says nothing of the request.
func TestOutcome_FinalIsNotMadeOfWhatPasses(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		for _, passing := range []error{
			context.Canceled, context.DeadlineExceeded, net.ErrClosed, &net.OpError{Op: "read", Err: net.ErrClosed},
			&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "08006"}, idem.ErrUnavailable,
			&pgconn.PgError{Code: "53100"}, &pgconn.PgError{Code: "58030"}, // the disk is full, or broken
			&pgconn.PgError{Code: "57014"}, // it took too long
		} {
			for _, final := range []error{idem.Final(created), idem.FinalKeep(created)} {
				key := newKey(t)
				_, err := call(key, fp, nil, effects.write(key.Key, created, errors.Join(final, passing)))
				if !errors.Is(err, passing) {
					t.Errorf("%s: %v, want %v", way, err, passing)
				}
				effects.want(t, key.Key, 0)
				wantFree(t, s, key)
			}
		}
	}
}

// What aborted the transaction in the end counts, and not what was rolled back before.
func TestOutcome_FinalAfterARolledBackStatementIsNotMadeOfWhatPasses(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return idem.Reply{}, err
			}
			_, violation := nested.Exec(ctx, "SELECT 1/0")
			if err := nested.Rollback(ctx); err != nil || violation == nil {
				return idem.Reply{}, errors.Join(err, errors.New("no violation"))
			}
			_, _ = tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '57014'; END $$")
			return idem.Reply{}, idem.Final(created)
		})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "57014" {
			t.Errorf("%s: %v, want what aborted the transaction", way, err)
		}
		wantFree(t, s, key)
	}
}

// A unique violation is a refusal that stays. The connections are new, so the
// statements that follow must be prepared in the transaction that it aborted.
func TestOutcome_FinalAfterAnAbortedStatement(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		pool := pgtest.Pool(t)
		s, unique := store(t, pool, idem.Config{}), table(t, pool, "id int PRIMARY KEY").Sanitize()
		exec(t, pool, "INSERT INTO "+unique+" VALUES (1)")
		for way, call := range waysToCall(t, pool, s) {
			pool.Reset()
			key := newKey(t)
			got, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				_, err := tx.Exec(ctx, "INSERT INTO "+unique+" VALUES (1)")
				if err == nil {
					t.Error("no violation")
				}
				if keep {
					return idem.Reply{}, idem.FinalKeep(created)
				}
				return idem.Reply{}, idem.Final(created)
			})
			if keep { // there is nothing that could be kept
				if err == nil {
					t.Errorf("%s: FinalKeep in an aborted transaction: no error", way)
				}
				wantFree(t, s, key)
				continue
			}
			wantResult(t, got, err, created, false)
			wantReplay(t, s, key, created)
		}
	}
}

// Whatever the function says, a transaction that a statement aborted holds nothing
// to store.
func TestOutcome_SwallowedErrorIsAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	swallow := map[string]func(context.Context, pgx.Tx){
		"Exec":     func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `SELECT 1/0`) },
		"QueryRow": func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, `SELECT 1/0`).Scan(new(int)) },
		"Query": func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Query(ctx, `SELECT 1/(3 - i) FROM generate_series(1, 5) AS i`)
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx) { b := &pgx.Batch{}; b.Queue(`SELECT 1/0`); tx.SendBatch(ctx, b) },
		"Conn":      func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Conn().Exec(ctx, `SELECT 1/0`) },
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.CopyFrom(ctx, pgx.Identifier{"nowhere"}, []string{"a"}, pgx.CopyFromRows([][]any{{1}}))
		},
	}
	for way, call := range waysToCall(t, pool, s) {
		for what, fn := range swallow {
			key := newKey(t)
			_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				_, err := effects.write(key.Key, created, nil)(ctx, tx)
				fn(ctx, tx)
				return created, err
			})
			if err == nil {
				t.Errorf("%s, %s: no error", way, what)
			}
			if e, ok := errors.AsType[*pgconn.PgError](err); what != "Conn" && (!ok || e.Code != "22012" && e.Code != "42P01") {
				t.Errorf("%s, %s: %v, want the cause in it", way, what, err)
			}
			effects.want(t, key.Key, 0)
			wantFree(t, s, key)
		}
	}
}

func TestOutcome_CtxThatEndedLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for _, end := range []error{nil, errBusiness, idem.Final(created)} {
		key := newKey(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		_, err := s.Do(ctx, key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			r, err := effects.write(key.Key, created, end)(ctx, tx)
			cancel()
			return r, err
		})
		wantErr(t, err, context.Canceled)
		effects.want(t, key.Key, 0)
		wantFree(t, s, key)

		key = newKey(t)
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = s.Do(ctx, key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(10)`)
			if end != nil {
				err = end
			}
			return idem.Reply{}, err
		})
		cancel()
		wantErr(t, err, context.DeadlineExceeded)
		wantFreeSoon(t, s, key)
	}
}
