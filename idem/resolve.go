package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// resolvePoll is the time between two tries to find out.
const resolvePoll = 50 * time.Millisecond

// resolve finds out, over a new connection, what became of a COMMIT that was not
// answered: nil when it committed, *lostError when it did not, and ErrUnavailable
// when the database can't tell within 5 s. The old transaction has the key's lock
// until it has ended, so whoever has the lock sees all that came of it.
func (k *claim) resolve(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		stored, err := k.stored(ctx)
		switch {
		case err == nil && stored:
			return nil
		case err == nil, errors.Is(err, pgx.ErrNoRows):
			return &lostError{fmt.Errorf("%s: %w: commit was rolled back: %w", k.key, ErrUnavailable, cause)}
		}
		select {
		case <-time.After(resolvePoll):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: the outcome of the commit is unknown: %w", k.key, ErrUnavailable, cause)
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
	return stored, err
}
