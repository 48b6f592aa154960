package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	if err == nil {
		return tx, nil // not a nil *fencedTx in a pgx.Tx
	}
	if refused, ok := errors.AsType[*FencedError](err); ok {
		l.lose(lossOf(refused)) // the database's word ends it at once
	}
	return nil, err
}

// lossOf is what a refusal means for the holder: one that is still holding did
// not release, so somebody else did.
func lossOf(refused *FencedError) error {
	if errors.Is(refused.Reason, ErrReleased) {
		return ErrSuperseded
	}
	return refused.Reason
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
	// The limit counts from here, not from the answer: the server may have locked
	// the row long before that arrives.
	begun := time.Now()
	limited, cancel := context.WithDeadline(ctx, begun.Add(c.cfg.FenceTimeout))
	defer cancel()
	begin := &beginning{conn: conn.Conn(), opts: opts}
	row, err := lockdb.New(begin).LeaseFenceFirst(limited, lockdb.LeaseFenceFirstParams{
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
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w (%s): %w", ErrFenceTimeout, c.cfg.FenceTimeout, err)
		}
		return nil, err
	}
	return newFencedTx(c, conn, begin.tx, seq.name, begun, origin{
		xid: row.Xid, system: row.SystemIdentifier, timeline: row.Timeline,
	}), nil
}

// beginning runs one query of sqlc's as the first statement of a transaction,
// in the round trip of its BEGIN, and leaves the transaction open.
type beginning struct {
	conn *pgx.Conn
	opts pgx.TxOptions
	tx   pgx.Tx
}

var _ lockdb.DBTX = (*beginning)(nil)

// errBadUse can't reach a user: a fence is a query of one row.
var errBadUse = errors.New("pglock: a transaction begins with a query of one row")

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
