package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// resolvePoll is the time between two tries to find out.
const resolvePoll = 50 * time.Millisecond

// conclusion is how a transaction ends.
type conclusion struct {
	// send stores what came of it, and sends COMMIT behind that. No round trip:
	// nothing was sent that commits.
	send func(context.Context) (*roundTrip, error)
	// stored says whether that is stored, when the transaction has ended. ErrFenced
	// is a no that is for good.
	stored func(context.Context) (bool, error)
}

// conclude ends a transaction of our own. Once COMMIT is sent, ctx doesn't end it:
// that would leave an outcome that nobody knows.
func (c *call) conclude(ctx context.Context, own *ownTx, end conclusion) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	trip, err := end.send(limited)
	switch {
	case trip == nil: // nothing was sent that commits
		return err
	case err == nil && trip.last.String() == "COMMIT":
		return nil
	case err == nil:
		return fmt.Errorf("commit %s: %w", c.key, pgx.ErrTxCommitRollback)
	case answered(err) && trip.queried: // what fn deferred to COMMIT
		return fmt.Errorf("commit %s: %w", c.key, err)
	case answered(err):
		return c.failure(limited, "finish", err)
	case pgconn.SafeToRetry(err):
		return &lostError{c.failure(limited, "finish", err)}
	}
	own.discard(ctx)
	err = c.resolve(ctx, end.stored, err)
	if lost, ok := errors.AsType[*lostError](err); ok && limited.Err() != nil {
		return lost.error // a COMMIT that takes so long would do so again
	}
	return err
}

// resolve finds out, over a new connection, what became of a COMMIT that was not
// answered: nil when it committed, *lostError when it did not, and ErrUnavailable
// when the database can't tell within 5 s. The old transaction has its lock until it
// has ended, so whoever has the lock sees all that came of it.
func (c *call) resolve(ctx context.Context, stored func(context.Context) (bool, error), cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		ok, err := stored(ctx)
		switch {
		case err == nil && ok:
			return nil
		case err == nil:
			return &lostError{fmt.Errorf("%s: %w: commit was rolled back: %w", c.key, ErrUnavailable, cause)}
		case errors.Is(err, ErrFenced):
			return fmt.Errorf("%s: %w", c.key, err)
		}
		select {
		case <-time.After(resolvePoll):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: the outcome of the commit is unknown: %w", c.key, ErrUnavailable, cause)
		}
	}
}

// stored waits for the key's lock and says whether this claim's reply is there.
// READ COMMITTED, so that the statement behind the lock has a snapshot of its own;
// READ WRITE, so that a standby, which may be behind, refuses to answer.
func (k *claim) stored(ctx context.Context) (bool, error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	deadline, _ := ctx.Deadline()
	trip := &roundTrip{
		send:   conn.SendBatch,
		begin:  &pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite},
		before: []statement{{idemdb.KeyLock, []any{asLockTimeout(time.Until(deadline)), k.key.lock()}}},
		after:  []statement{{sql: "COMMIT"}},
	}
	stored, err := idemdb.New(trip).KeyOutcome(ctx, idemdb.KeyOutcomeParams{
		Operation: k.key.Operation, Scope: string(k.key.Scope), Key: k.key.Key, Attempt: k.attempt,
	})
	(&ownTx{conn: conn, tx: trip.tx}).end(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return stored, err
}
