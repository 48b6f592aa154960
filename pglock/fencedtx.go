package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fencedTx is a pgx.Tx that gives its connection back, is cut off when it takes
// too long, and resolves a COMMIT whose answer was lost.
type fencedTx struct {
	pgx.Tx
	conn     *pgxpool.Conn
	socket   net.Conn
	client   *Client
	name     string
	origin   origin
	deadline time.Time
	watchdog *time.Timer

	mu sync.Mutex
	// over is set before the connection is given back: a watchdog that fires late
	// must not cut a connection that somebody else has by then.
	over bool
}

func newFencedTx(c *Client, conn *pgxpool.Conn, inner pgx.Tx, name string, begun time.Time, from origin) *fencedTx {
	tx := &fencedTx{
		Tx: inner, conn: conn, socket: conn.Conn().PgConn().Conn(), client: c,
		name: name, origin: from, deadline: begun.Add(c.cfg.FenceTimeout),
	}
	tx.watchdog = time.AfterFunc(time.Until(tx.deadline), tx.cut)
	return tx
}

// cut closes the connection under a client that exceeded its time, so that the
// server rolls back. It is the timeouts' second half: they end a transaction
// that the server waits in, this one ends a client that waits for the server.
func (tx *fencedTx) cut() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tx.over {
		_ = tx.socket.Close()
	}
}

// finish ends the use of the transaction: true once.
func (tx *fencedTx) finish() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.over {
		return false
	}
	tx.over = true
	tx.watchdog.Stop()
	return true
}

// timedOut says so when an error came, or may have come, of being cut off.
func (tx *fencedTx) timedOut(err error) error {
	if err == nil || time.Now().Before(tx.deadline) {
		return err
	}
	return fmt.Errorf("fence %q: %w (%s): %w", tx.name, ErrFenceTimeout, tx.client.cfg.FenceTimeout, err)
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
	if !tx.finish() {
		return pgx.ErrTxClosed
	}
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := tx.Tx.Commit(commitCtx)
	if err == nil || answered(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		tx.conn.Release()
		return tx.timedOut(err)
	}
	discard(ctx, tx.conn)
	return tx.timedOut(tx.client.resolveCommit(ctx, tx.origin, err))
}

// Rollback rolls back; after Commit it is pgx.ErrTxClosed and does nothing. It
// takes 5 s at most: when the server doesn't answer, the connection is closed,
// and that rolls back too.
func (tx *fencedTx) Rollback(ctx context.Context) error {
	if !tx.finish() {
		return pgx.ErrTxClosed
	}
	defer tx.conn.Release()
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return tx.Tx.Rollback(ctx)
}
