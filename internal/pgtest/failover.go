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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Failover is a primary, a standby, and an address that leads to one of them. They share
// no data: the standby is one in that it takes connections and no writes.
type Failover struct {
	Primary, Standby *pgxpool.Pool

	toStandby atomic.Bool
	refusals  refusals
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
	cfg.ConnConfig.Tracer = &f.refusals
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

// Refusals counts what was sent in batches over Pool's connections, and those of a pool
// of its configuration, and refused because it met a standby.
func (f *Failover) Refusals() int { return int(f.refusals.n.Load()) }

// refusals counts them, as a tracer.
type refusals struct{ n atomic.Int64 }

func (*refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*refusals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*refusals) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*refusals) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd knows them by BEGIN READ WRITE, which is 0A000 there, and by what writes.
func (r *refusals) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	if refused, ok := errors.AsType[*pgconn.PgError](data.Err); ok && (refused.Code == "0A000" || refused.Code == "25006") {
		r.n.Add(1)
	}
}
