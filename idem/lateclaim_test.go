package idem_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// "Not there" is no "never": a claim that comes after it was looked for, and given back for
// the first time, is given back too.
func TestBegin_ClaimThatComesLateIsGivenBack(t *testing.T) {
	t.Parallel()
	url, key := pgtest.Database(t), newKey(t)
	direct := pgtest.Connect(t, pgtest.Direct(t, url))
	exec(t, poolWith(t, pgtest.Owner(t, url)), `
		CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
			'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN new; END';
		CREATE TRIGGER late BEFORE INSERT ON gatepost.idempotency_keys FOR EACH ROW EXECUTE FUNCTION public.late()`)
	gate := begin(t, direct, pgx.TxOptions{})
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	releases := &givenBack{}
	pool, proxy := faultproxy.Pool(t, pgtest.Direct(t, url), 4, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = releases })
	s := holder(t, pool, idem.Config{Lease: time.Hour})
	proxy.Next(faultproxy.Fault{Match: "AttemptClaim", Cut: true})
	_, err := s.Begin(t.Context(), key, fp)
	wantErr(t, err, idem.ErrUnavailable)
	waitUntil(t, "a release that finds nothing", func() bool { return releases.n.Load() > 0 })
	if err := gate.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "release of the claim", func() bool { return rowOf(t, direct, key).State == 4 })
}

// givenBack counts the releases of a pool that were answered.
type givenBack struct{ n atomic.Int64 }

func (*givenBack) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*givenBack) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*givenBack) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*givenBack) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (g *givenBack) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "AttemptRelease") {
		g.n.Add(1)
	}
}
