package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InTx runs fn in a fenced transaction: it commits only if this lease's token
// was the current one when it began, and no takeover is granted before it ends.
// This is the rung that protects: what fn writes through tx is refused to a
// holder that lost its lease, whatever that holder believes.
//
// fn's error, or a panic, rolls back and comes back. The transaction may take
// FenceTimeout at most. It costs no round trip more than BEGIN and COMMIT, and
// one row lock.
//
// Errors: *FencedError when refused (fn is not called); ErrFenceTimeout;
// ErrCommitUnknown when COMMIT was not answered and could not be resolved. Any
// other error means that nothing was committed.
func (l *Lease) InTx(ctx context.Context, fn func(pgx.Tx) error) error {
	tx, err := l.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	return runInTx(ctx, tx, fn)
}

// BeginTx begins a fenced transaction, as InTx, for a caller that commits it by
// itself. Options: any isolation level; pgx.ReadOnly and a BeginQuery or
// CommitQuery of one's own are ErrFenceMisplaced. The transaction is a pgx.Tx
// in every way; Commit ignores the end of its ctx for 5 s, so that a deadline
// doesn't make an outcome unknown.
func (l *Lease) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	if err := l.Err(); err != nil {
		return nil, &FencedError{Name: l.seq.name, Token: l.seq.token, Reason: err}
	}
	tx, err := l.client.beginFenced(ctx, l.seq, opts)
	if refused, ok := errors.AsType[*FencedError](err); ok {
		l.lose(refused.Reason) // the database's word ends it at once
	}
	return tx, err
}

// InTx is Lease.InTx for a process that was handed a lease's sequencer. It knows
// nothing of the lease but what the database says.
func (c *Client) InTx(ctx context.Context, seq Sequencer, fn func(pgx.Tx) error) error {
	if seq.IsZero() {
		return fmt.Errorf("fence: %w: it is the zero value", ErrInvalidSequencer)
	}
	tx, err := c.beginFenced(ctx, seq, pgx.TxOptions{})
	if err != nil {
		return err
	}
	return runInTx(ctx, tx, fn)
}

// runInTx commits after fn; an error or a panic rolls back.
func runInTx(ctx context.Context, tx pgx.Tx, fn func(pgx.Tx) error) error {
	defer func() {
		// A no-op after Commit. The caller's ctx may be why we roll back.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if err := fn(tx); err != nil {
		if fenced, ok := tx.(*fencedTx); ok {
			err = fenced.timedOut(err)
		}
		return err
	}
	return tx.Commit(ctx)
}

// beginFenced opens a fenced transaction. An expiry that was seen through a
// snapshot older than a heartbeat's commit is not believed at once.
func (c *Client) beginFenced(ctx context.Context, seq Sequencer, opts pgx.TxOptions) (*fencedTx, error) {
	if opts.AccessMode == pgx.ReadOnly || opts.BeginQuery != "" || opts.CommitQuery != "" {
		return nil, fmt.Errorf("fence %q: %w: a fenced transaction is READ WRITE, with BEGIN and COMMIT of its own", seq.name, ErrFenceMisplaced)
	}
	opts.AccessMode = pgx.ReadWrite
	tx, err := c.beginFencedOnce(ctx, seq, opts)
	if errors.Is(err, ErrExpired) {
		return c.beginFencedOnce(ctx, seq, opts)
	}
	return tx, err
}

func (c *Client) beginFencedOnce(ctx context.Context, seq Sequencer, opts pgx.TxOptions) (*fencedTx, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("fence %q: %w", seq.name, err)
	}
	begin := &beginning{conn: conn.Conn(), opts: opts}
	row, err := lockdb.New(begin).LeaseFenceFirst(ctx, lockdb.LeaseFenceFirstParams{
		LimitMs: c.cfg.FenceTimeout.Milliseconds(),
		Name:    seq.name, Slot: seq.slot, Token: seq.token, Nonce: seq.nonce,
	})
	if err != nil || !row.Live {
		begin.abort(ctx)
		if err == nil {
			err = &FencedError{Name: seq.name, Token: seq.token, Current: seq.token, Reason: ErrExpired}
		} else {
			err = refusal(ctx, lockdb.New(conn), seq, err)
		}
		conn.Release()
		return nil, err
	}
	tx := &fencedTx{Tx: begin.tx, conn: conn, client: c, name: seq.name, origin: origin{
		xid: row.Xid, system: row.SystemIdentifier, timeline: row.Timeline,
	}}
	tx.watchdog = time.AfterFunc(c.cfg.FenceTimeout, tx.cut)
	return tx, nil
}

// beginning runs one query of sqlc's as the first statement of a transaction,
// in the round trip of its BEGIN, and leaves the transaction open.
type beginning struct {
	conn *pgx.Conn
	opts pgx.TxOptions
	tx   pgx.Tx
}

var _ lockdb.DBTX = (*beginning)(nil)

func (b *beginning) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errBadUse
}

func (b *beginning) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errBadUse
}

func (b *beginning) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	batch := &pgx.Batch{}
	batch.BeginTx(b.opts)
	batch.Queue(sql, args...)
	results := b.conn.SendBatch(ctx, batch)
	b.tx = results.Tx()
	return &beginningRow{results: results}
}

// abort rolls back what was begun, so that the connection can be used again.
func (b *beginning) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.tx.Rollback(ctx) // when it fails, pgx has closed the connection
}

type beginningRow struct{ results pgx.BatchResults }

func (r *beginningRow) Scan(dest ...any) error {
	_, err := r.results.Exec() // BEGIN
	if err == nil {
		err = r.results.QueryRow().Scan(dest...)
	}
	if closeErr := r.results.Close(); err == nil {
		err = closeErr
	}
	return err
}

// fencedTx is a pgx.Tx that gives its connection back, is cut off when it takes
// too long, and resolves a COMMIT whose answer was lost.
type fencedTx struct {
	pgx.Tx
	conn     *pgxpool.Conn
	client   *Client
	name     string
	origin   origin
	watchdog *time.Timer
	tooLong  atomic.Bool
	over     bool
}

// cut closes the connection under a client that exceeded its time, so that the
// server rolls back. It is the timeouts' second half: they end a transaction
// that the server waits in, this one ends a client that waits for the server.
func (tx *fencedTx) cut() {
	tx.tooLong.Store(true)
	_ = tx.conn.Conn().PgConn().Conn().Close()
}

// timedOut says so when an error came of being cut off.
func (tx *fencedTx) timedOut(err error) error {
	if err != nil && tx.tooLong.Load() {
		return fmt.Errorf("fence %q: %w (%s): %w", tx.name, ErrFenceTimeout, tx.client.cfg.FenceTimeout, err)
	}
	return err
}

// Commit commits. See Lease.InTx for its errors.
func (tx *fencedTx) Commit(ctx context.Context) error {
	if tx.over {
		return pgx.ErrTxClosed
	}
	if err := ctx.Err(); err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx))
		return err
	}
	tx.watchdog.Stop()
	tx.over = true
	if tx.tooLong.Load() {
		defer tx.conn.Release()
		return tx.timedOut(tx.Tx.Commit(ctx))
	}
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := tx.Tx.Commit(commitCtx)
	if err == nil || answered(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		tx.conn.Release()
		return err
	}
	discard(ctx, tx.conn)
	return tx.client.resolveCommit(ctx, tx.origin, err)
}

// Rollback rolls back; after Commit it is pgx.ErrTxClosed and does nothing.
func (tx *fencedTx) Rollback(ctx context.Context) error {
	if tx.over {
		return pgx.ErrTxClosed
	}
	tx.watchdog.Stop()
	tx.over = true
	defer tx.conn.Release()
	return tx.Tx.Rollback(ctx)
}
