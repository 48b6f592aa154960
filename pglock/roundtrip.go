package pglock

import (
	"context"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// shortTx runs one query of sqlc's in a transaction of its own at READ
// COMMITTED, whatever the database's default is, in one round trip: BEGIN, the
// query and COMMIT leave together. A result counts only after COMMIT was
// answered, so Scan and Err report its error too. After a plain error the
// connection is usable again.
type shortTx struct{ conn *pgx.Conn }

var _ lockdb.DBTX = shortTx{}

// inShortTx runs the next query in a short transaction.
func inShortTx(conn *pgx.Conn) *lockdb.Queries { return lockdb.New(shortTx{conn: conn}) }

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

func (s shortTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := s.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

func (s shortTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(readCommitted)
	batch.Queue(sql, args...)
	batch.Queue("COMMIT")

	results := s.conn.SendBatch(ctx, batch)
	rows := &shortTxRows{ctx: ctx, results: results}
	if _, err := results.Exec(); err != nil { // BEGIN
		rows.finish()
		return nil, rows.err
	}
	inner, err := results.Query()
	rows.Rows = inner
	if err != nil {
		rows.finish()
		return nil, rows.err
	}
	return rows, nil
}

func (s shortTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return &shortTxRow{rows: rows, err: err}
}

// shortTxRows ends the transaction when the last row was read.
type shortTxRows struct {
	pgx.Rows
	ctx     context.Context //nolint:containedctx // pgx.Rows.Close takes none, and the rows live in one call
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *shortTxRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.finish()
	return false
}

func (r *shortTxRows) Close()     { r.finish() }
func (r *shortTxRows) Err() error { return r.err }

// finish reads the answer to COMMIT, or rolls back what an error left open.
func (r *shortTxRows) finish() {
	if r.closed {
		return
	}
	r.closed = true
	if r.Rows != nil {
		r.Rows.Close()
	}
	_, r.err = r.results.Exec() // COMMIT, or the error of what came before
	if err := r.results.Close(); err != nil || r.err != nil {
		_ = r.results.Tx().Rollback(r.ctx) // pgx closes the connection when that fails
	}
}

type shortTxRow struct {
	rows pgx.Rows
	err  error
}

// Scan returns pgx.ErrNoRows when there is none, after COMMIT succeeded.
func (r *shortTxRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
