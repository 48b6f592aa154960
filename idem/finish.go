package idem

import (
	"context"
	"errors"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// Finish ends the attempt with the reply that later calls get. fn, which may be nil,
// writes what belongs to it in this database, in the same transaction: the key's row
// is locked first, as this attempt's, so that either both are committed or nothing.
// fn must not end the transaction, may run again when it met a concurrent one, and
// must not leave it idle for longer than ten leases (a minute at least): the server
// ends it then.
//
// It doesn't matter whether the lease has lapsed, as long as nobody took the key
// over: then nobody else has run, and nobody will.
//
// A body over Config.MaxBody leaves a tombstone. On an error the attempt stays as it
// was, to be finished or released; after ErrUnavailable the outcome of COMMIT may be
// unknown: finish again, and ErrEnded says that it had been stored. ctx bounds all but
// COMMIT. Two round trips and what fn does, on a pooled connection.
//
// Errors: fn's own; ErrFenced (another attempt has the key, or it was forgotten: what
// fn wrote is rolled back); ErrEnded (it was finished or released, or is a replay);
// ErrInvalidReply, ErrUnavailable, ErrNotMigrated.
func (a *Attempt) Finish(ctx context.Context, r Reply, fn func(pgx.Tx) error) error {
	record, err := a.call.record(r, a.id)
	if err != nil {
		return err
	}
	t := &attemptTx{
		first: func(q *idemdb.Queries) error { return a.lock(ctx, q) },
		run:   fn,
		last: func(ctx context.Context, q *idemdb.Queries) error {
			_, err := q.KeyFinish(ctx, record)
			return err
		},
		stored: a.finished,
	}
	err = a.pinned(func() error {
		err := a.call.repeat(ctx, func() error { return a.transaction(ctx, t) })
		if err == nil {
			a.close(ctx) // before the clock counts again: it may find the lease over
		}
		return err
	})
	a.settle(ctx, t.verdict)
	return err
}

func (a *Attempt) lock(ctx context.Context, q *idemdb.Queries) error {
	_, err := q.AttemptLock(ctx, idemdb.AttemptLockParams{
		Operation: a.call.key.Operation, Scope: string(a.call.key.Scope), Key: a.call.key.Key, Attempt: a.id,
		LimitMs: a.call.idleLimit(),
	})
	return err
}

// finished finds out whether a reply is stored, after a COMMIT that was not answered.
func (a *Attempt) finished(ctx context.Context) (bool, error) {
	state, err := a.outcome(ctx)
	return err == nil && state != stateRunning, err
}

// Release gives the key back without a reply, for the next attempt with the same
// fingerprint: that one knows that somebody was here before (Previous). Do it when
// nothing happened outside the database, or when that can be found out; else let the
// attempt lapse. Deferred behind Begin it does no harm: after Finish, Release or a
// replay it does nothing and returns nil.
//
// The row stays, whose attempt tells this one from the next. One round trip on a
// pooled connection. When the database can't be reached, releasing goes on in the
// background for a few seconds; after that the claim lapses. Under the attempt's own
// Context, which ends by it, it takes 5 s at most.
//
// Errors: ErrFenced (another attempt has the key; nothing is changed),
// ErrUnavailable, ErrNotMigrated.
func (a *Attempt) Release(ctx context.Context) error {
	if !a.close(ctx) {
		return nil
	}
	rest, cancel := outliving(ctx)
	defer cancel()
	err := a.call.releaseRow(rest, a.id)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		if err = a.notRunning(rest, &attemptTx{}); errors.Is(err, ErrEnded) { // by a COMMIT whose answer was lost
			return nil
		}
		return err
	case !answered(err):
		a.call.abandon(ctx, a.id)
	}
	if rest.Err() == nil {
		ctx = rest
	}
	return a.call.failure(ctx, "release", err)
}
