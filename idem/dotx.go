package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DoTx is Do in a transaction of the caller's: the claim, what fn writes and the
// reply are committed with whatever else the caller does in it, or not at all. The
// result counts only once the caller has committed. It uses no other connection.
//
// Everything happens in a savepoint, so that on an error of fn or of DoTx the key
// is free and the transaction is as it was, and can be used; except after a lost
// connection, ErrNotMigrated, and where a context ended, which closes the
// connection. lock_timeout is left as it was.
//
// A transaction that meets a concurrent one is the caller's to repeat: the error
// matches ErrRetryTx, and the *pgconn.PgError is in it. At REPEATABLE READ and
// SERIALIZABLE that includes a key that was committed after the transaction's
// snapshot: what is seen and replayed is seen in the snapshot. opts.Wait, at these
// levels, mostly waits for that.
//
// SET CONSTRAINTS ALL IMMEDIATE before DoTx or in fn makes the claim fail with
// SQLSTATE GP002, since a claim isn't finished before fn is.
//
// Errors are those of Do, and pgx.ErrTxClosed. Three round trips and what fn does;
// one for a replay, which takes no lock and writes nothing.
func (s *Store) DoTx(ctx context.Context, tx pgx.Tx, key Key, fp Fingerprint, opts *Options, fn func(context.Context, pgx.Tx) (Reply, error)) (Result, error) {
	c, err := s.newCall(key, fp, opts, fn)
	if err != nil {
		return Result{}, err
	}
	result, err := c.inTx(ctx, tx)
	if err != nil && !errors.Is(err, ErrRetryTx) && retryable(err) {
		err = fmt.Errorf("%w: %w", ErrRetryTx, err)
	}
	return result, err
}

func (c *call) inTx(ctx context.Context, tx pgx.Tx) (Result, error) {
	found, err := c.probe(ctx, tx)
	if err != nil || found != nil {
		return value(found), err
	}
	open := &roundTrip{tx: tx, send: tx.SendBatch, before: []statement{{sql: savepointKey}}}
	done := false
	defer func() { // also when fn panics
		if !done && open.opened {
			giveBack(ctx, tx)
		}
	}()
	k, err := c.take(ctx, open)
	if err != nil || k.replay != nil {
		return value(k.replay), err
	}
	outcome, err := k.run(ctx)
	if err != nil {
		return Result{}, err
	}
	if trip, err := k.finish(ctx, outcome, releaseKey); trip == nil {
		return Result{}, err
	} else if err != nil {
		return Result{}, c.failure(ctx, "finish", err)
	}
	done = true
	return Result{Reply: outcome.reply}, nil
}

// giveBack rolls back to where DoTx began, and leaves the transaction usable.
func giveBack(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_, _ = tx.Exec(ctx, rollbackToKey+"; "+releaseKey) // when it fails, the transaction is aborted
}
