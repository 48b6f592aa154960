package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fencedTx is a pgx.Tx that gives its connection back, is cut off when it takes
// too long, and resolves a COMMIT whose answer was lost.
type fencedTx struct {
	pgx.Tx
	conn     *pgxpool.Conn
	dog      *watchdog
	client   *Client
	seqs     []Sequencer // in lock order
	origin   origin
	deadline time.Time
	over     atomic.Bool // by Commit or Rollback
}

// timedOut says so when an error came, or may have come, of being cut off.
func (tx *fencedTx) timedOut(err error) error {
	if err == nil || time.Now().Before(tx.deadline) {
		return err
	}
	return tx.client.timedOut(tx.seqs[0].name, err)
}

// fencedOff rolls back after a guard's refusal, and names it: a lease that was released
// since the fence passed is over for a guard. One that is live was not what the guard
// asked for, and the guard's own error says that. Without an answer the refusal alone
// counts.
func (tx *fencedTx) fencedOff(ctx context.Context, err error) error {
	if sqlState(err) != CodeFenced || errors.Is(err, ErrFenced) {
		return err
	}
	_ = tx.Rollback(ctx)
	again, refused := tx.client.beginFencedOnce(ctx, tx.seqs, pgx.TxOptions{AccessMode: pgx.ReadWrite, IsoLevel: pgx.ReadCommitted})
	switch {
	case refused == nil:
		_ = again.Rollback(ctx)
		return err
	case errors.Is(refused, ErrFenced):
		return fmt.Errorf("%w: %w", refused, err)
	default:
		return fmt.Errorf("%w: %w (%w)", ErrFenced, err, refused)
	}
}

func (c *Client) timedOut(name string, err error) error {
	return fmt.Errorf("fence %q: %w (%s): %w", name, ErrFenceTimeout, c.cfg.FenceTimeout, err)
}

// Commit commits. See Lease.InTx for its errors. A ctx that is over already
// rolls back instead.
func (tx *fencedTx) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		if errors.Is(tx.Rollback(context.WithoutCancel(ctx)), pgx.ErrTxClosed) {
			return pgx.ErrTxClosed
		}
		return err
	}
	if tx.over.Swap(true) {
		return pgx.ErrTxClosed
	}
	tx.dog.extend(cleanupTimeout) // from here it is COMMIT that is bounded
	const none = 'I'
	if tx.conn.Conn().PgConn().TxStatus() == none {
		return tx.endedByText(ctx)
	}
	err := tx.Tx.Commit(context.WithoutCancel(ctx))
	if err == nil || answered(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		giveBackWatched(ctx, tx.conn, tx.dog)
		return tx.timedOut(err)
	}
	tx.dog.stop()
	discard(ctx, tx.conn)
	return tx.timedOut(tx.client.resolveCommit(ctx, tx.origin, err))
}

// endedByText is for a transaction that a statement in it has ended, a script's COMMIT
// perhaps: each one after that was a transaction of its own, without a fence.
func (tx *fencedTx) endedByText(ctx context.Context) error {
	_ = tx.Tx.Rollback(context.WithoutCancel(ctx)) // there is none; it ends the use of the connection
	giveBackWatched(ctx, tx.conn, tx.dog)
	return fmt.Errorf("fence %q: %w: a statement in the transaction ended it, and what came after that was written without a fence",
		tx.seqs[0].name, ErrFenceMisplaced)
}

// Rollback rolls back; after Commit it is pgx.ErrTxClosed and does nothing. It
// takes 5 s at most: when the server doesn't answer, the connection is closed,
// and that rolls back too.
func (tx *fencedTx) Rollback(ctx context.Context) error {
	if tx.over.Swap(true) {
		return pgx.ErrTxClosed
	}
	tx.dog.extend(cleanupTimeout)
	err := tx.Tx.Rollback(ctx)
	giveBackWatched(ctx, tx.conn, tx.dog)
	return err
}
