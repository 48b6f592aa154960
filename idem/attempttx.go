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

// attemptTx is a transaction of an attempt.
type attemptTx struct {
	// first locks the key's row as the attempt's: pgx.ErrNoRows when it isn't.
	first func(*idemdb.Queries) error
	// run is the caller's part; it may be nil.
	run func(pgx.Tx) error
	// last stores what came of it, and is sent with COMMIT.
	last func(context.Context, *idemdb.Queries) error
	// outcome says whether it was committed, when no transaction is at work on the
	// row any more.
	outcome func(context.Context) (bool, error)

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
		return false, err
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
	switch status := tx.status(); {
	case status == 'E' && tx.conflict != nil:
		return errors.Join(translate(tx.conflict), err)
	case err != nil:
		return err
	case status == 'E':
		return errors.Join(errAborted, tx.cause)
	case status != 'T':
		return errEnded
	default:
		return nil
	}
}

// commit sends what is to be stored, and COMMIT. Once it is sent, ctx doesn't end
// it: that would leave an outcome that nobody knows.
func (a *Attempt) commit(ctx context.Context, own *ownTx, t *attemptTx) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	trip := &roundTrip{tx: own.tx, send: own.tx.SendBatch, after: []statement{{sql: "COMMIT"}}}
	err := t.last(limited, idemdb.New(trip))
	switch {
	case err == nil && trip.last.String() == "COMMIT":
		return nil
	case err == nil:
		return pgx.ErrTxCommitRollback
	case answered(err) && trip.done > 0: // a deferred constraint of the caller's
		return fmt.Errorf("commit: %w", translate(err))
	case answered(err):
		return a.call.failure(limited, "store", err)
	case pgconn.SafeToRetry(err):
		return &lostError{a.call.failure(limited, "commit", err)}
	}
	own.discard(ctx)
	return a.resolve(ctx, t, err)
}

// resolve finds out, over a new connection, what became of a COMMIT that was not
// answered: nil when it committed, *lostError when it did not, and ErrUnavailable
// when the database can't tell within 5 s. The old transaction has the row locked
// until it has ended, so whoever has the lock sees all that came of it.
func (a *Attempt) resolve(ctx context.Context, t *attemptTx, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		committed, err := t.outcome(ctx)
		switch {
		case err == nil && committed:
			return nil
		case err == nil:
			return &lostError{fmt.Errorf("%w: commit was rolled back: %w", ErrUnavailable, cause)}
		case errors.Is(err, pgx.ErrNoRows):
			t.verdict = ErrFenced
			return ErrFenced
		}
		select {
		case <-time.After(resolvePoll):
		case <-ctx.Done():
			return fmt.Errorf("%w: the outcome of the commit is unknown: %w", ErrUnavailable, cause)
		}
	}
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
	return t.verdict
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
func (a *Attempt) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", a.call.key, err)
}

// idleLimit is how long a client may say nothing in a transaction that has the row
// locked, in milliseconds: ten leases, at least a minute. One that was stopped there
// must not keep the key for ever, and one that waits for a peer must have the time.
func (c *call) idleLimit() int64 { return asLockTimeout(max(10*c.cfg.Lease, time.Minute)) }
