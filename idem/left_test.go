package idem_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
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

// logged is what a store tells its operator.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAttempt_ThatIsLostIsAnErrorInTheLog(t *testing.T) {
	t.Parallel()
	var log logged
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{Lease: short, Logger: slog.New(slog.NewTextHandler(&log, nil))}), key)
	change(t, pool, key, "attempt = gen_random_uuid()")
	<-a.Done()
	waitUntil(t, "a word of it", func() bool { return log.String() != "" })
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, key.Operation) || strings.Contains(text, key.Key) {
		t.Errorf("logged %q, want an error with the operation and without the key", text)
	}
}

// Nothing is committed for a caller who has gone before COMMIT.
func TestFinish_AndStepStoreNothingAfterTheirCtx(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	ctx, cancel := context.WithCancel(t.Context())
	wantErr(t, a.Finish(ctx, answer, func(pgx.Tx) error { cancel(); return nil }), context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	_, err := a.Step(ctx, "s", func(pgx.Tx) ([]byte, error) { cancel(); return nil, nil })
	wantErr(t, err, context.Canceled)
	if r := rowOf(t, pool, key); r.State != 1 || steps(t, pool, key) != 0 {
		t.Errorf("row %+v, %d steps", r, steps(t, pool, key))
	}
	finish(t, a)
}

// The oldest go first, and what was removed is told also where ctx has ended.
func TestGC_TellsWhatItRemovedUntilItsCtxEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	batches := 0
	pool := own(t, func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			if batches++; batches == 2 {
				cancel()
			}
			return true, nil
		}
	})
	admin := pgtest.Connect(t, pool.Config().ConnString())
	fill(t, admin, 1500, "1 h")
	removed, err := holder(t, pool, idem.Config{}).GC(ctx)
	wantErr(t, err, context.Canceled)
	if left := value[int](t, admin, `SELECT max(key::text::int) FROM gatepost.idempotency_keys`); removed != 1000 || left != 500 {
		t.Errorf("%d were removed, and of those that are left the oldest is %d; want 1000, and 500", removed, left)
	}
}

// Who has the row locked works with it: it is there, and there is no lease to wait for.
func TestForget_OfARowThatIsLockedIsInProgress(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := holder(t, pool, idem.Config{})
	for _, row := range []string{
		"2, NULL::timestamptz, now() + interval '1 h', 1", "1, now() - interval '1 min', now() + interval '1 h', 1",
	} {
		key := newKey(t)
		put(t, pool, key, row)
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.idempotency_keys WHERE scope = $1 AND key = $2 FOR UPDATE`, key.Scope, key.Key); err != nil {
			t.Fatal(err)
		}
		err := s.Forget(t.Context(), key)
		if e, ok := errors.AsType[*idem.InProgressError](err); !ok || e.RetryAfter != 0 {
			t.Errorf("%s: %v, want InProgressError without a time", row, err)
		}
		_ = tx.Rollback(t.Context())
	}
}

func TestRelease_GoesOnWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var refused atomic.Int32
	pool, direct, key := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				refused.Add(1)
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return dial(ctx, network, address)
		}
	}), pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{Lease: time.Hour}), key)
	down.Store(true)
	pool.Reset()
	wantErr(t, a.Release(t.Context()), idem.ErrUnavailable)
	waitUntil(t, "a try in the background", func() bool { return refused.Load() > 1 })
	down.Store(false)
	waitUntil(t, "the release", func() bool { return rowOf(t, direct, key).State == 4 })
}

// A renewal leaves the column alone that is indexed, mostly, or none would be HOT.
func TestHeartbeat_MovesTheRecordsExpirySeldom(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	claim(t, holder(t, pool, idem.Config{Lease: short, Retention: time.Hour}), key)
	expiry := func() time.Time {
		return value[time.Time](t, pool, `SELECT expires_at FROM gatepost.idempotency_keys WHERE scope = $1 AND key = $2`, key.Scope, key.Key)
	}
	renewed(t, pool, key, 1)
	first := expiry()
	renewed(t, pool, key, 2)
	if second := expiry(); !second.Equal(first) {
		t.Errorf("the record's expiry went from %s to %s", first, second)
	}
	if left := rowOf(t, pool, key).Left; left < time.Hour {
		t.Errorf("the record has %s left, less than its retention", left)
	}
}

func TestTx_NestedThatIsLeftOpenIsClosedWithTheCall(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
		var nested pgx.Tx
		_, err := call(newKey(t), fp, nil, func(ctx context.Context, tx pgx.Tx) (_ idem.Reply, err error) {
			if nested, err = tx.Begin(ctx); err == nil {
				err = errBusiness
			}
			return idem.Reply{}, err
		})
		wantErr(t, err, errBusiness)
		for _, err := range []error{nested.Commit(t.Context()), nested.Rollback(t.Context())} {
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s: ended after the call: %v, want pgx.ErrTxClosed", way, err)
			}
		}
	}
}
