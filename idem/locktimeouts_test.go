package idem_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockTimeouts counts the statements of a pool that waited for a lock to no end, 55P03.
type lockTimeouts struct{ n atomic.Int32 }

func (*lockTimeouts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (l *lockTimeouts) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	l.count(data.Err)
}

func (*lockTimeouts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *lockTimeouts) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	l.count(data.Err)
}

func (*lockTimeouts) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (l *lockTimeouts) count(err error) {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "55P03" {
		l.n.Add(1)
	}
}
