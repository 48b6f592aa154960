package pglock_test

import (
	"context"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func execMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func TestExecModes_AllWork(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			ctx := t.Context()
			pool := poolWith(t, pgtest.URL(t), execMode(mode), maxConns(2))
			c := client(t, pool, pglock.Config{Holder: `it's "me"`})
			name, table := pgtest.Name(t)+`/'"\$1 é`, table(t, direct)
			data := json.RawMessage(`{"why": "it's \\ \"quoted\" $1"}`)
			l := acquire(t, c, name, &pglock.AcquireOptions{TTL: 15500 * time.Millisecond, Data: data})
			if got := value[string](t, direct, `SELECT data::text FROM gatepost.leases WHERE name = $1`, name); got != string(data) {
				t.Errorf("data = %s, want %s", got, data)
			}
			_, err := c.TryAcquire(ctx, name, nil)
			wantErr(t, err, pglock.ErrHeld)
			for range 2 { // the second time from the caches
				if err := l.Renew(ctx); err != nil {
					t.Fatalf("Renew: %v", err)
				}
				if err := l.InTx(ctx, func(tx pgx.Tx) error { return insert(ctx, tx, table, "InTx") }); err != nil {
					t.Fatalf("InTx: %v", err)
				}
				if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, l.Sequencer()) }); err != nil {
					t.Fatalf("Fence: %v", err)
				}
			}
			if n := rows(t, direct, table); n != 2 {
				t.Errorf("%d rows, want 2", n)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatalf("Release: %v", err)
			}
			wantErr(t, c.InTx(ctx, l.Sequencer(), nothing), pglock.ErrFenced)
			if next := acquire(t, c, name, nil); next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
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

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pgtest.NotPooledIn(t, mode)
			var count atomic.Int64
			pool := poolWith(t, pgtest.URL(t), execMode(mode), maxConns(1), func(cfg *pgxpool.Config) {
				cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
				dial := cfg.ConnConfig.DialFunc
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &turns{Conn: conn, count: &count}, err
				}
			})
			c := client(t, pool, pglock.Config{Control: pgtest.Pool(t)})
			name := pgtest.Name(t)
			var l *pglock.Lease
			var tx pgx.Tx
			steps := []struct {
				what string
				want int64
				do   func() error
			}{
				{"TryAcquire", 1, func() (err error) { l, err = c.TryAcquire(ctx, name, nil); return err }},
				{"BeginTx", 1, func() (err error) {
					tx, err = l.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
					return err
				}},
				{"Commit", 1, func() error { return tx.Commit(ctx) }},
				{"InTx", 2, func() error { return l.InTx(ctx, func(pgx.Tx) error { return nil }) }},
				{"Release, with a look for waiters", 1, func() error { return l.Release(ctx) }},
			}
			const rounds = 6 // the last one has everything prepared
			for i := range rounds {
				for _, step := range steps {
					before := count.Load()
					if err := step.do(); err != nil {
						t.Fatalf("%s: %v", step.what, err)
					}
					if got := count.Load() - before; i == rounds-1 && got != step.want {
						t.Errorf("%s: %d round trips, want %d", step.what, got, step.want)
					}
				}
			}
		})
	}
}

// Heartbeats that time out replace the control pool, again and again on a machine that has
// no time: whoever waits for a connection of the old one gets one of the next.
func TestControl_AReplacedPoolIsNobodysError(t *testing.T) {
	t.Parallel()
	var c *pglock.Client
	var left atomic.Int32
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if left.Add(-1) >= 0 {
				pglock.ReplaceControl(c)
			}
			return nil
		}
	})
	c = client(t, pool, pglock.Config{})
	for range 20 {
		left.Store(4)
		if err := pglock.OnControl(t.Context(), c, func(conn *pgx.Conn) error { return conn.Ping(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		pglock.ReplaceControl(c) // so that the next call connects
	}
}

// What cfg says of hooks and settings holds for the control connections too.
func TestControl_KeepsTheApplicationsHooks(t *testing.T) {
	t.Parallel()
	var hooked atomic.Int64
	pool := poolWith(t, pgtest.URL(t), maxConns(1), func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			hooked.Add(1)
			_, err := conn.Exec(ctx, `SET application_name = 'hooked'`)
			return err
		}
	})
	l := acquire(t, client(t, pool, pglock.Config{}), pgtest.Name(t), nil)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := hooked.Load(); got != 2 {
		t.Errorf("AfterConnect ran %d times, want 2: for the pool and for control", got)
	}
}

// A connection that is never made must not keep the control pool's places.
func TestHeartbeat_SurvivesConnectsThatHang(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	var hang atomic.Int64
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if hang.Add(-1) >= 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, addr)
		}
	})
	l := acquire(t, client(t, pool, pglock.Config{TTL: long, RenewEvery: 400 * time.Millisecond}), name, nil)
	hang.Store(3) // both places, and one more
	renewedAgain(t, direct, name)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

// The control pool's sessions may begin otherwise than the application's, of which
// the client learnt how they begin.
func TestRelease_OverAControlPoolOfAnotherDefault(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"default_transaction_isolation": "repeatable read",
		"default_transaction_read_only": "on",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			pool, direct := poolWith(t, url, maxConns(1)), pgtest.Connect(t, url)
			cfg := pglock.Config{TTL: time.Minute, Control: poolWith(t, url, setting(name, value))}
			l := acquire(t, client(t, pool, cfg), pgtest.Name(t), nil)
			waiting := granted(t, client(t, direct, slowPoll), l.Name())
			registered(t, direct, l.Name(), 1)
			listening(t, direct)
			conn, err := pool.Acquire(t.Context()) // the application's only connection
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()

			other := begin(t, direct, pgx.TxOptions{})
			if _, err := other.Exec(t.Context(), `UPDATE gatepost.leases SET renewed_at = renewed_at WHERE name = $1`, l.Name()); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- l.Release(context.WithoutCancel(t.Context())) }()
			if name == "default_transaction_isolation" {
				blocked(t, direct, other.Conn().PgConn().PID())
			}
			commit(t, other)
			if err := <-done; err != nil {
				t.Errorf("Release: %v", err)
			}
			release(t, within(t, 20*time.Second, waiting))
		})
	}
}
