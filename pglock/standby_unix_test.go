//go:build unix

package pglock_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// standby is a server that takes connections and no writes.
func standby(t *testing.T) *pgxpool.Pool {
	t.Helper()
	s, pool := server(t, nil)
	signal := filepath.Join(value[string](t, pool, `SHOW data_directory`), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o644); err != nil { //nolint:gosec // the server, which is another user, reads it
		t.Skip(err) // in a container
	}
	restart(t, s, pool, pgtemp.Fast)
	if !value[bool](t, pool, `SELECT pg_is_in_recovery()`) {
		t.Fatal("it is no standby")
	}
	return pool
}

// switchable is a pool whose connections are made to whichever server is the target:
// an address that moves, as at a failover.
func switchable(t *testing.T, servers ...*pgxpool.Pool) (pool *pgxpool.Pool, target *atomic.Int32) {
	t.Helper()
	target = &atomic.Int32{}
	pool = poolWith(t, servers[0].Config().ConnString(), func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			to := servers[target.Load()].Config().ConnConfig
			network, address := pgconn.NetworkAddress(to.Host, to.Port)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	return pool, target
}

// A connection to a server that is only a standby by now would refuse each heartbeat
// for as long as it lives.
func TestStandby_ConnectionsToItAreReplaced(t *testing.T) {
	t.Parallel()
	_, primary := server(t, nil)
	secondary := standby(t)
	pool, target := switchable(t, primary, secondary)
	name, table := pgtest.Name(t), table(t, primary)
	c := client(t, pool, pglock.Config{TTL: 20 * time.Second, RenewEvery: 50 * time.Millisecond})
	l := acquire(t, c, name, nil)
	renewedAgain(t, primary, name)

	// The old connections break, and what is made next goes to the standby.
	target.Store(1)
	exec(t, primary, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	write := func() error {
		return l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "x") })
	}
	eventually(t, "heartbeats and writes that meet the standby", 10*time.Second, func() bool {
		_ = write()
		return value[int](t, secondary, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`) >= 3
	})
	for _, try := range []func() error{
		write,
		func() error { _, err := c.TryAcquire(t.Context(), pgtest.Name(t), nil); return err },
	} {
		if try() == nil {
			t.Error("a standby granted it")
		}
	}

	target.Store(0)
	renewedAgain(t, primary, name)
	eventually(t, "a fenced write", 10*time.Second, func() bool { return write() == nil })
	target.Store(1)
	pool.Reset()
	if write() == nil {
		t.Error("a standby accepted a fenced write")
	}
	target.Store(0)
	eventually(t, "an acquisition", 10*time.Second, func() bool {
		_, err := c.TryAcquire(t.Context(), pgtest.Name(t), nil)
		return err == nil
	})
	release(t, l)
}
