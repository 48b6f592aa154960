package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// attemptTx is a transaction of an attempt.
type attemptTx struct {
	// first locks the key's row as the attempt's: pgx.ErrNoRows when it isn't.
	first func(*idemdb.Queries) error
	// run is the caller's part; it may be nil.
	run func(pgx.Tx) error
	// last stores what came of it, and is sent with COMMIT.
	last func(context.Context, *idemdb.Queries) error
	// stored says whether that is there, when no transaction is at work on the row any
	// more: pgx.ErrNoRows when the row is another attempt's.
	stored func(context.Context) (bool, error)

	// verdict is what the row said of the attempt, if it is over: ErrFenced, ErrEnded
	// or ErrLapsed. The caller's part may return these words for reasons of its own.
	verdict error
}

// transaction runs one once, at the database's default isolation, as the caller's
// part expects. An error means that nothing was committed, unless it is
// ErrUnavailable; again says whether to repeat it.
func (a *Attempt) transaction(ctx context.Context, t *attemptTx) error {
	notRunning, err := a.tryTransaction(ctx, t)
	if notRunning { // not before the connection is given back: this needs one too
		return a.notRunning(ctx, t)
	}
	return err
}

func (a *Attempt) tryTransaction(ctx context.Context, t *attemptTx) (notRunning bool, err error) {
	conn, err := a.call.pool.Acquire(ctx)
	if err != nil {
		return false, a.call.failure(ctx, "begin", fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
	own := &ownTx{conn: conn}
	defer own.end(ctx)
	open := &roundTrip{send: conn.SendBatch, begin: &pgx.TxOptions{AccessMode: pgx.ReadWrite}}
	err = t.first(idemdb.New(open))
	own.tx = open.tx
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return true, nil
	case errors.Is(err, errStored):
		return false, err
	case errors.Is(err, ErrLapsed):
		t.verdict = ErrLapsed
		return false, a.named(err)
	case err != nil:
		return false, perhapsStale(a.call.failure(ctx, "begin", err))
	}
	if t.run != nil {
		if err := own.run(t.run); err != nil {
			return false, own.broken(err)
		}
	}
	return false, a.commit(ctx, own, t)
}

// run calls fn with the transaction and tells what it means. Nothing is final here.
func (o *ownTx) run(fn func(pgx.Tx) error) error {
	tx := newGuardedTx(o.tx)
	defer tx.close()
	err := fn(tx)
	if _, isFinal := errors.AsType[*finalError](err); isFinal {
		return err
	}
	_, err = tx.judge(Reply{}, err)
	return err
}

// commit stores what came of it, and commits.
func (a *Attempt) commit(ctx context.Context, own *ownTx, t *attemptTx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.call.conclude(ctx, own, conclusion{
		send: func(ctx context.Context) (*roundTrip, error) {
			trip := &roundTrip{tx: own.tx, send: own.tx.SendBatch, after: []statement{{sql: "COMMIT"}}}
			return trip, t.last(ctx, idemdb.New(trip))
		},
		stored: func(ctx context.Context) (bool, error) {
			stored, err := t.stored(ctx)
			if errors.Is(err, pgx.ErrNoRows) {
				t.verdict, err = ErrFenced, ErrFenced
			}
			return stored, err
		},
	})
}

// notRunning tells why the row doesn't run as this attempt: ErrEnded when the attempt
// has ended it, ErrFenced when it is another's.
func (a *Attempt) notRunning(ctx context.Context, t *attemptTx) error {
	switch state, err := a.outcome(ctx); {
	case errors.Is(err, pgx.ErrNoRows):
		t.verdict = ErrFenced
	case err != nil:
		return a.call.failure(ctx, "look up", err)
	case state == stateRunning: // a COMMIT that is lost was still on its way
		return ErrRetryTx
	default:
		t.verdict = ErrEnded
	}
	return a.named(t.verdict)
}

// outcome is the state of the row that is this attempt's, when no transaction is at
// work on it any more; pgx.ErrNoRows when it is another's.
func (a *Attempt) outcome(ctx context.Context) (state int16, err error) {
	err = alone(ctx, a.call.pool, func(q *idemdb.Queries) (err error) {
		state, err = q.AttemptOutcome(ctx, idemdb.AttemptOutcomeParams{
			Operation: a.call.key.Operation, Scope: string(a.call.key.Scope), Key: a.call.key.Key, Attempt: a.id,
		})
		return err
	})
	return state, err
}

// settle ends the attempt when the row said that it is over.
func (a *Attempt) settle(ctx context.Context, verdict error) {
	switch {
	case errors.Is(verdict, ErrEnded):
		a.close(ctx)
	case verdict != nil:
		a.lose(verdict)
	}
}

// named says which key it was.
func (a *Attempt) named(err error) error { return fmt.Errorf("%s: %w", a.call.key, err) }

// idleLimit is how long a client may say nothing in a transaction that has the row
// locked, in milliseconds: ten leases, at least a minute. One that was stopped there
// must not keep the key for ever, and one that waits for a peer must have the time.
func (c *call) idleLimit() int64 { return asLockTimeout(max(10*c.cfg.Lease, time.Minute)) }
