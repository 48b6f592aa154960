package pgtest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Failover is a primary, a standby, and an address that leads to one of them. They share
// no data: the standby is one in that it takes connections and no writes.
type Failover struct {
	Primary, Standby *pgxpool.Pool

	toStandby atomic.Bool
}

// NewFailover starts the servers, which stop when the test ends. The address leads to the
// primary.
func NewFailover(tb testing.TB) *Failover {
	tb.Helper()
	_, primary := ownServer(tb)
	s, standby := ownServer(tb)
	var data string
	if err := standby.QueryRow(tb.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil { //nolint:gosec // the server, another user, reads it
		tb.Skip(err) // it is in a container
	}
	if err := s.Restart(tb.Context(), pgtemp.Fast); errors.Is(err, errors.ErrUnsupported) {
		tb.Skip(err)
	} else if err != nil {
		tb.Fatal(err)
	}
	standby.Reset()
	return &Failover{Primary: primary, Standby: standby}
}

func ownServer(tb testing.TB) (*pgtemp.Server, *pgxpool.Pool) {
	tb.Helper()
	s, err := pgtemp.Start(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	pool := Connect(tb, s.URL(""))
	if err := migrations.Up(tb.Context(), pool); err != nil {
		tb.Fatal(err)
	}
	return s, pool
}

// Pool is a pool whose connections are made to where the address leads at that moment.
func (f *Failover) Pool(tb testing.TB, maxConns int32) *pgxpool.Pool {
	tb.Helper()
	cfg := f.Primary.Config().Copy()
	cfg.MaxConns = maxConns
	cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		to := f.Primary.Config().ConnConfig
		if f.toStandby.Load() {
			to = f.Standby.Config().ConnConfig
		}
		network, address := pgconn.NetworkAddress(to.Host, to.Port)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Switch makes the address lead to the standby, or back. Connections that were made before
// stay where they are.
func (f *Failover) Switch(toStandby bool) { f.toStandby.Store(toStandby) }

// Break switches to the standby and breaks the connections to the primary.
func (f *Failover) Break(tb testing.TB) {
	tb.Helper()
	f.Switch(true)
	_, err := f.Primary.Exec(tb.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	if err != nil {
		tb.Fatal(err)
	}
}

// Visitors counts the connections to the standby.
func (f *Failover) Visitors(tb testing.TB) (n int) {
	tb.Helper()
	err := f.Standby.QueryRow(tb.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&n)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
