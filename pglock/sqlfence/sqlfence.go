// Package sqlfence is pglock's fence for transactions of database/sql, and so for
// what is built on it: GORM, bun, ent, and sqlc's code for database/sql.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	if err := sqlfence.Fence(ctx, tx, seq); err != nil { // first, before any write
//		return err
//	}
//
// It works with any driver whose errors have a SQLState method, which pgx/stdlib's
// and lib/pq's do. Leases themselves are acquired with a pglock.Client, on a
// pgxpool: heartbeats need connections of their own.
package sqlfence

import (
	"context"
	"database/sql"
	"errors"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a transaction: a *sql.Tx, or a wrapper of one that has its methods.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Fence is pglock.Fence, with one round trip more, in which it makes sure that tx
// is one transaction: a *sql.DB is pglock.ErrFenceMisplaced.
func Fence(ctx context.Context, tx Tx, seq pglock.Sequencer) error {
	return pglock.Fence(ctx, adapter{tx}, seq)
}

// FenceAll is pglock.FenceAll.
func FenceAll(ctx context.Context, tx Tx, seqs ...pglock.Sequencer) error {
	return pglock.FenceAll(ctx, adapter{tx}, seqs...)
}

// Advance is pglock.Advance.
func Advance(ctx context.Context, tx Tx, resource string, token int64) error {
	return pglock.Advance(ctx, adapter{tx}, resource, token)
}

// adapter is a Tx as a pglock.DBTX. The fence runs queries of one row only.
type adapter struct{ tx Tx }

var _ pglock.DBTX = adapter{}

var errOneRow = errors.New("sqlfence: the fence runs queries of one row only")

func (a adapter) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	_, err := a.tx.ExecContext(ctx, query, args...)
	return pgconn.CommandTag{}, err
}

func (a adapter) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errOneRow }

func (a adapter) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return row{a.tx.QueryRowContext(ctx, query, args...)}
}

type row struct{ *sql.Row }

// Scan says "no row" as pgx does.
func (r row) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return pgx.ErrNoRows
	}
	return err
}
