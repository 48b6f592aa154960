package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ownTx is a transaction on a connection of the pool.
type ownTx struct {
	conn *pgxpool.Conn
	tx   pgx.Tx
}

// opening is the round trip that begins it.
func (o *ownTx) opening() *roundTrip {
	return &roundTrip{send: o.conn.SendBatch, begin: &pgx.TxOptions{AccessMode: pgx.ReadWrite}}
}

// end rolls back what was not committed, and gives the connection back.
func (o *ownTx) end(ctx context.Context) {
	if o.conn == nil {
		return
	}
	defer o.giveBack(ctx)
	if conn := o.conn.Conn(); o.tx == nil || conn.IsClosed() || conn.PgConn().TxStatus() == txNone {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = o.tx.Rollback(ctx) // when it fails, pgx has closed the connection
}

// giveBack returns the connection to its pool; one to a server that was demoted, or that
// an address led to for a moment, is closed, since it would refuse each transaction for
// as long as it lives.
func (o *ownTx) giveBack(ctx context.Context) {
	if conn := o.conn.Conn(); o.tx != nil && conn.PgConn().ParameterStatus("in_hot_standby") == "on" {
		_ = conn.Close(ctx)
	}
	o.conn.Release()
}

// broken says so of an error of fn's whose connection broke.
func (o *ownTx) broken(err error) error {
	if o.conn.Conn().IsClosed() && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// discard closes the connection and gives its place in the pool back.
func (o *ownTx) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	conn := o.conn.Conn().PgConn()
	_ = conn.Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
	o.conn.Release()
	o.conn = nil
}
