package idem

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type txKey struct{}

// Tx is the transaction that a function of Do or DoTx runs in, from its context;
// nil elsewhere. It is for code that gets the context only, such as an HTTP handler.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(*guardedTx)
	if tx == nil {
		return nil
	}
	return tx
}

// Why a transaction's method is refused.
var (
	errNotYours = errors.New("idem: this transaction ends when the function returns: return an error to roll back, nil to commit; Begin makes a nested one")
	errAborted  = errors.New("idem: the function returned no error, but a statement had failed and aborted its transaction: return the error, or roll back a nested transaction")
	errEnded    = errors.New("idem: the function ended its transaction by itself")
	errUnread   = errors.New("idem: the function left a result unread: a QueryRow without Scan")
)

// What a connection says of its transaction.
const (
	txOpen    = 'T'
	txAborted = 'E'
	txNone    = 'I'
)

// guardedTx is the transaction that fn gets. It can't be ended by fn, is closed
// when fn has returned, and remembers what PostgreSQL said, since an error that fn
// keeps to itself may be one that is never final.
type guardedTx struct {
	inner pgx.Tx
	*watch
}

// watch is what was seen of a transaction's errors. Its transactions share it.
type watch struct {
	conn *pgx.Conn

	mu sync.Mutex
	// over is set when fn has returned.
	over bool
	// conflict is the first serialization failure or deadlock, and stays.
	conflict error
	// cause is the error that the transaction is aborted by now, if it is.
	cause error
	// unread closes the last result that fn got, which may still be open.
	unread func()
}

func newGuardedTx(tx pgx.Tx) *guardedTx {
	return &guardedTx{inner: tx, watch: &watch{conn: tx.Conn()}}
}

func (w *watch) status() byte { return w.conn.PgConn().TxStatus() }

// close ends the use of the transaction by fn. What fn left unread is read, so that
// an error in it is seen, and the connection can be used.
func (w *watch) close() {
	w.mu.Lock()
	unread := w.unread
	w.over, w.unread = true, nil
	w.mu.Unlock()
	if unread != nil {
		unread()
	}
}

func (w *watch) opened(unread func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = unread
}

func (w *watch) closed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return pgx.ErrTxClosed
	}
	return nil
}

// note remembers how a statement ended, and returns err.
func (w *watch) note(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		if w.status() == txOpen {
			w.cause = nil // rolled back to a savepoint
		}
	case retryable(err):
		if w.conflict == nil {
			w.conflict = err
		}
		w.cause = err
	case w.cause == nil && sqlState(err) != "":
		w.cause = err
	}
	return err
}

func (tx *guardedTx) Commit(context.Context) error   { return errNotYours }
func (tx *guardedTx) Rollback(context.Context) error { return errNotYours }
func (tx *guardedTx) Conn() *pgx.Conn                { return tx.inner.Conn() }

func (tx *guardedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := tx.closed(); err != nil {
		return nil, err
	}
	nested, err := tx.inner.Begin(ctx)
	if tx.note(err) != nil {
		return nil, err
	}
	return &nestedTx{guardedTx{inner: nested, watch: tx.watch}}, nil
}

func (tx *guardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := tx.closed(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := tx.inner.Exec(ctx, sql, args...)
	return tag, tx.note(err)
}

func (tx *guardedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := tx.closed(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	rows, err := tx.inner.Query(ctx, sql, args...)
	if err != nil {
		return rows, tx.note(err)
	}
	guarded := &guardedRows{Rows: rows, watch: tx.watch}
	tx.opened(guarded.Close)
	return guarded, nil
}

func (tx *guardedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := tx.closed(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return &guardedRow{row: tx.inner.QueryRow(ctx, sql, args...), watch: tx.watch}
}

func (tx *guardedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := tx.closed(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	guarded := &guardedResults{BatchResults: tx.inner.SendBatch(ctx, b), watch: tx.watch}
	tx.opened(func() { _ = guarded.Close() })
	return guarded
}

func (tx *guardedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := tx.closed(); err != nil {
		return 0, err
	}
	n, err := tx.inner.CopyFrom(ctx, table, columns, rows)
	return n, tx.note(err)
}

func (tx *guardedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := tx.closed(); err != nil {
		return nil, err
	}
	description, err := tx.inner.Prepare(ctx, name, sql)
	return description, tx.note(err)
}

func (tx *guardedTx) LargeObjects() pgx.LargeObjects { return tx.inner.LargeObjects() }

// nestedTx is a savepoint in a guardedTx, which fn ends as it likes.
type nestedTx struct{ guardedTx }

func (tx *nestedTx) Commit(ctx context.Context) error {
	if err := tx.closed(); err != nil {
		return err
	}
	return tx.note(tx.inner.Commit(ctx))
}

func (tx *nestedTx) Rollback(ctx context.Context) error {
	if err := tx.closed(); err != nil {
		return err
	}
	err := tx.inner.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return tx.note(err)
}
