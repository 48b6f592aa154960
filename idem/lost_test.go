package idem_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Also of a reply that is too large to be stored: the first caller gets it whole.
func TestLost_CommitOfATombstoneIsFound(t *testing.T) {
	t.Parallel()
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 1, readCommitted) // the lost connection has given its place up
	s, key, calls := store(t, pool, idem.Config{MaxBody: 1}), newKey(t), 0
	proxy.Next(faultproxy.Fault{Match: "KeyFinish"})
	got, err := s.Do(t.Context(), key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
		calls++
		return created, nil
	})
	wantResult(t, got, err, created, false)
	if _, err = s.Do(t.Context(), key, fp, nil, unreached(t)); !errors.Is(err, idem.ErrReplayUnavailable) || calls != 1 {
		t.Errorf("%v after %d runs", err, calls)
	}
}

// Who is gone may have it done: what became of a COMMIT is found out all the same, and
// told to whoever can still hear it.
func TestLost_CtxThatEndsBehindCommitIsTheOutcome(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 1, readCommitted, func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if lost.Load() { // it connects again, to find out
				cancel()
			}
			return nil
		}
	})
	s, key := store(t, pool, idem.Config{}), newKey(t)
	proxy.Next(faultproxy.Fault{Match: "KeyFinish"})
	got, err := s.Do(ctx, key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
		lost.Store(true)
		return created, nil
	})
	wantResult(t, got, err, created, false)
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
}

// What a lost connection left behind has the key until the server notices. The call
// waits for that, since it is its own.
func TestLost_GhostIsWaitedFor(t *testing.T) {
	t.Parallel()
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	proxy.Next(faultproxy.Fault{Match: "KeyClaim", Cut: true, Delay: 300 * time.Millisecond})
	got, err := s.Do(t.Context(), key, fp, nil, reply)
	wantResult(t, got, err, created, false)
}

// The connection breaks while COMMIT is under way, and COMMIT goes on or is killed:
// its end is waited for.
func TestLost_CommitUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	direct := pgtest.ReadCommitted(t)
	for _, kill := range []bool{true, false} {
		pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2, readCommitted)
		s, effects, key := store(t, pool, idem.Config{}), newLedger(t, direct), newKey(t)
		holder := slowCommit(t, direct, effects)
		var calls int
		pids := make(chan uint32, 2)
		if !kill {
			proxy.Next(faultproxy.Fault{Match: "KeyFinish", Cut: true})
		}
		result := make(chan error, 1)
		var got idem.Result
		go func() {
			var err error
			got, err = s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				calls++
				pids <- pgtest.Backend(t, tx)
				return effects.write(key.Key, created, nil)(ctx, tx)
			})
			result <- err
		}()
		pid := <-pids
		waitBlocked(t, direct, holder)
		if kill {
			exec(t, direct, `SELECT pg_terminate_backend($1)`, int32(pid))
			waitUntil(t, "the end of the backend", func() bool {
				return value[bool](t, direct, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, int32(pid))
			})
		} else {
			waitBlockedBy(t, direct, pid) // who finds out
		}
		if err := holder.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := <-result
		wantResult(t, got, err, created, false)
		if want := map[bool]int{true: 2, false: 1}[kill]; calls != want {
			t.Errorf("killed = %t: ran %d times, want %d", kill, calls, want)
		}
		effects.want(t, key.Key, 1)
		wantReplay(t, s, key, created)
	}
}

// slowCommit makes each COMMIT of an effect wait until the transaction that is
// returned has ended.
func slowCommit(t *testing.T, pool *pgxpool.Pool, effects ledger) pgx.Tx {
	t.Helper()
	gate := "hashtext('" + effects.name + "')"
	exec(t, pool, `CREATE FUNCTION `+effects.name+`() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(`+gate+`); RETURN NULL; END $$`)
	exec(t, pool, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON `+effects.name+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+effects.name+`()`)
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(`+gate+`)`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// An outcome that can't be found out in 5 s is not claimed, and a later call tells.
func TestLost_UnknownCommitIsUnavailable(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2)
	s, effects, key := store(t, pool, idem.Config{}), newLedger(t, direct), newKey(t)
	holder := slowCommit(t, direct, effects)
	go func() { // COMMIT arrives, succeeds, and then the network is silent
		waitBlocked(t, direct, holder)
		proxy.SetStall(true)
		exec(t, direct, `SELECT pg_terminate_backend($1)`, int32(pgtest.Backend(t, holder)))
	}()
	began := time.Now()
	_, err := s.Do(t.Context(), key, fp, nil, effects.write(key.Key, created, nil))
	wantErr(t, err, idem.ErrUnavailable)
	if took := time.Since(began); took < 9*time.Second || took > 20*time.Second {
		t.Errorf("took %s, want 5 s for COMMIT and 5 s to find out", took)
	}
	proxy.SetStall(false)
	effects.want(t, key.Key, 1)
	wantReplay(t, s, key, created)
}

// A COMMIT that takes too long is cancelled, and not tried again.
func TestLost_SlowCommitIsUnavailable(t *testing.T) {
	t.Parallel()
	pgtest.NotUncancelled(t)
	pool := pgtest.ReadCommitted(t)
	s, effects, key, calls := store(t, pool, idem.Config{}), newLedger(t, pool), newKey(t), 0
	holder := slowCommit(t, pool, effects)
	_, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		calls++
		return effects.write(key.Key, created, nil)(ctx, tx)
	})
	wantErr(t, err, idem.ErrUnavailable)
	if calls != 1 {
		t.Errorf("ran %d times, want once", calls)
	}
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	effects.want(t, key.Key, 0)
	wantFree(t, s, key)
}

// A ctx that ends while COMMIT is under way doesn't make its outcome unknown.
func TestLost_CtxThatEndsDuringCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	s, effects, key := store(t, pool, idem.Config{}), newLedger(t, pool), newKey(t)
	holder := slowCommit(t, pool, effects)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		waitBlocked(t, pool, holder)
		cancel()
		<-time.After(300 * time.Millisecond) // COMMIT would be given up by then
		ended <- holder.Rollback(context.WithoutCancel(ctx))
	}()
	got, err := s.Do(ctx, key, fp, nil, effects.write(key.Key, created, nil))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantResult(t, got, err, created, false)
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
}

func TestLost_BackendKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, direct)
	for way, call := range waysToCall(t, pool, s) {
		for _, swallow := range []error{nil, idem.Final(created), idem.FinalKeep(created), errBusiness} {
			key := newKey(t)
			_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				if _, err := effects.write(key.Key, created, nil)(ctx, tx); err != nil {
					return idem.Reply{}, err
				}
				exec(t, direct, `SELECT pg_terminate_backend($1)`, int32(pgtest.Backend(t, tx)))
				_, err := tx.Exec(ctx, `SELECT pg_sleep(10)`)
				if err == nil {
					t.Error("the backend lives")
				}
				if swallow != nil {
					err = swallow
				}
				return created, err
			})
			if err == nil || strings.HasPrefix(way, "Do ") && !errors.Is(err, idem.ErrUnavailable) {
				t.Errorf("%s, %v: %v, want ErrUnavailable", way, swallow, err)
			}
			effects.want(t, key.Key, 0)
			wantFreeSoon(t, store(t, direct, idem.Config{}), key)
		}
	}
}

// Killed without the function noticing: the COMMIT finds out, and it runs again.
func TestLost_BackendKilledUnnoticed(t *testing.T) {
	t.Parallel()
	direct := pgtest.ReadCommitted(t)
	s, effects, key, calls := store(t, pgtest.ReadCommitted(t), idem.Config{}), newLedger(t, direct), newKey(t), 0
	got, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		r, err := effects.write(key.Key, created, nil)(ctx, tx)
		pid := int32(pgtest.Backend(t, tx))
		if calls++; calls == 1 {
			exec(t, direct, `SELECT pg_terminate_backend($1)`, pid)
			waitUntil(t, "the end of the backend", func() bool {
				return value[bool](t, direct, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
			})
		}
		return r, err
	})
	wantResult(t, got, err, created, false)
	if calls != 2 {
		t.Errorf("ran %d times, want 2", calls)
	}
	effects.want(t, key.Key, 1)
}

func TestLost_NoServerIsUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	pool := pgtest.Connect(t, "postgres://postgres@"+address+"/postgres")
	_, err = store(t, pool, idem.Config{}).Do(t.Context(), newKey(t), fp, nil, unreached(t))
	wantErr(t, err, idem.ErrUnavailable)
	if _, ok := errors.AsType[*pgconn.ConnectError](err); !ok {
		t.Errorf("%v, want the cause in it", err)
	}
	closed := pgtest.Pool(t)
	closed.Close()
	_, err = store(t, closed, idem.Config{}).Do(t.Context(), newKey(t), fp, nil, unreached(t))
	wantErr(t, err, idem.ErrUnavailable)
}

func TestLost_SilenceIsBoundedByTheContext(t *testing.T) {
	t.Parallel()
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2)
	s := store(t, pool, idem.Config{})
	wantFree(t, s, newKey(t)) // warms the connection up
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Do(ctx, newKey(t), fp, nil, unreached(t))
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestLost_NotMigrated(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
		_, err := call(newKey(t), fp, nil, unreached(t))
		if !errors.Is(err, idem.ErrNotMigrated) {
			t.Errorf("%s: %v, want ErrNotMigrated", way, err)
		}
	}
}

// A schema that lacks what this version asks for is named as such.
func TestLost_OldSchema(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"ALTER TABLE gatepost.idempotency_keys DROP COLUMN codec", "DROP TABLE gatepost.idempotency_keys CASCADE",
		"ALTER DOMAIN gatepost.idem_fingerprint RENAME TO idem_print",
	} {
		url := pgtest.Database(t)
		exec(t, poolWith(t, pgtest.Owner(t, url)), sql)
		pool := poolWith(t, url)
		for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
			_, err := call(newKey(t), fp, nil, unreached(t))
			if !errors.Is(err, idem.ErrNotMigrated) {
				t.Errorf("%s, after %s: %v, want ErrNotMigrated", way, sql, err)
			}
		}
	}
}
