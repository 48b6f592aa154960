package idem_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// modePoolOf is a pool in one of pgx's ways to send statements.
func modePoolOf(t *testing.T, mode pgx.QueryExecMode, size int32, count *atomic.Int64, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = size
	cfg.ConnConfig.DefaultQueryExecMode = mode
	readCommitted(cfg)
	for _, c := range change {
		c(cfg)
	}
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &turns{Conn: conn, count: count}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func TestModes_AllWork(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			pool := modePoolOf(t, mode, 2, new(atomic.Int64))
			s, effects, direct := store(t, pool, idem.Config{}), newLedger(t, pgtest.Pool(t)), store(t, pgtest.Pool(t), idem.Config{})
			for way, call := range waysToCall(t, pool, s) {
				for i, want := range awkward {
					key := idem.Key{Operation: `it's "op" \ $1`, Scope: `é '"\`, Key: newKey(t).Key + `'"\$1`}
					got, err := call(key, fp, &idem.Options{Wait: time.Second}, effects.write(key.Key, want, nil))
					wantResult(t, got, err, want, false)
					effects.want(t, key.Key, 1)
					got, err = call(key, fp, nil, unreached(t))
					wantResult(t, got, err, want, true)
					wantReplay(t, direct, key, want)
					if i == 0 {
						_, err = call(key, idem.FingerprintOf(nil), nil, unreached(t))
						wantErr(t, err, idem.ErrMismatch)
						key.Key += "-final"
						got, err = call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
							_, _ = tx.Exec(ctx, `SELECT 1/0`)
							return idem.Reply{}, idem.Final(created)
						})
						wantResult(t, got, err, created, false)
						wantReplay(t, s, key, created)
					}
				}
				busy, holder := newKey(t), begin(t, pgtest.Pool(t), pgx.TxOptions{})
				if _, err := direct.DoTx(t.Context(), holder, busy, fp, nil, reply); err != nil {
					t.Fatal(err)
				}
				for _, o := range []*idem.Options{nil, {Wait: 20 * time.Millisecond}} {
					_, err := call(busy, fp, o, unreached(t))
					if eventOf(idem.Result{}, err) != inProgress {
						t.Errorf("%s: %v, want in progress", way, err)
					}
				}
			}
		})
	}
}

// turns counts how often a connection begins to write after it has read: the
// round trips.
type turns struct {
	net.Conn
	read  atomic.Bool
	count *atomic.Int64
}

func (c *turns) Write(b []byte) (int, error) {
	if c.read.Swap(false) {
		c.count.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *turns) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Store(true)
	return n, err
}

func TestModes_RoundTrips(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			var count atomic.Int64
			pool := modePoolOf(t, mode, 1, &count)
			s := store(t, pool, idem.Config{})
			var key idem.Key
			do := func(end error) func() error {
				return func() error {
					_, err := s.Do(t.Context(), key, fp, &idem.Options{Wait: time.Second}, func(context.Context, pgx.Tx) (idem.Reply, error) { return created, end })
					return err
				}
			}
			doTx := func() error {
				_, err := inTx(t.Context(), pool, pgx.TxOptions{}, s, key, fp, nil, reply)
				return err
			}
			steps := []struct {
				what  string
				fresh bool
				want  int64
				do    func() error
			}{
				{"Do", true, 2, do(nil)},
				{"replay behind it", false, 2, do(nil)},
				{"replay behind that", false, 1, do(nil)},
				{"Do behind a replay", true, 3, do(nil)},
				{"Do with Final", true, 2, do(idem.Final(created))},
				{"DoTx, BEGIN and COMMIT", true, 5, doTx},
				{"replay of DoTx, BEGIN and COMMIT", false, 3, doTx},
			}
			for i := range 3 {
				for _, step := range steps {
					if step.fresh {
						key = newKey(t)
					}
					before := count.Load()
					if err := step.do(); err != nil {
						t.Fatalf("%s: %v", step.what, err)
					}
					if got := count.Load() - before; i > 0 && got != step.want {
						t.Errorf("%s: %d round trips, want %d", step.what, got, step.want)
					}
				}
			}
		})
	}
}

func TestReplay_TakesNoLockAndWritesNothing(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t)
	s, key := store(t, pool, idem.Config{}), newKey(t)
	wantFree(t, s, key)
	exec(t, pool, `VACUUM (FREEZE) gatepost.idempotency_keys`) // else the first reader sets hint bits
	tx := begin(t, pool, pgx.TxOptions{})
	type writes struct {
		Xid, Locks, Updates int64
		Dirty               bool
	}
	look := func() (w writes) {
		t.Helper()
		err := tx.QueryRow(t.Context(), `SELECT coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND (locktype IN ('advisory', 'tuple', 'transactionid') OR mode NOT IN ('AccessShareLock', 'ExclusiveLock'))),
			(SELECT sum(pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid)) FROM pg_class AS c WHERE c.relname = 'idempotency_keys')::bigint`,
		).Scan(&w.Xid, &w.Locks, &w.Updates)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	before := look()
	for _, f := range []idem.Fingerprint{fp, idem.FingerprintOf(nil)} {
		for _, o := range []*idem.Options{nil, {Wait: time.Second}} {
			_, _ = s.DoTx(t.Context(), tx, key, f, o, unreached(t))
		}
	}
	if after := look(); after != before || after.Xid != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	readOnly := pgtest.Connect(t, pool.Config().ConnString()+"&default_transaction_read_only=on")
	wantReplay(t, store(t, readOnly, idem.Config{}), key, idem.Reply{})
}
