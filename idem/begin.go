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

// Begin claims a key for an operation with effects outside the database, which can't
// commit together with a record of them. The claim commits first, by itself, and is
// held by a lease that heartbeats renew: the effects follow, then Finish. Where the
// effects are in this database, Do is what protects.
//
// What comes back is an attempt that may run, or, when the operation is done, one
// whose Replay is its reply. When somebody was here before and lapsed or gave up, the
// attempt says so (Previous), and its effect may have happened: see BeginRecover.
//
// ctx bounds the call and not the attempt. When it ends, or the connection breaks,
// with the outcome unknown, the claim is looked up and either returned or given back
// in the background. It never waits for another claim, of either mode. One round
// trip on a pooled connection, and one commit when it is granted.
//
// Errors: *InProgressError, ErrMismatch, *ReplayUnavailableError, ErrInvalidReply (of a
// stored one that DoValue made), ErrInvalidKey, ErrUnavailable, ErrNotMigrated,
// ErrClosed. Nothing is claimed then.
func (s *Store) Begin(ctx context.Context, key Key, fp Fingerprint) (*Attempt, error) {
	c, err := s.newCall(key, fp, nil, nil)
	if err != nil {
		return nil, err
	}
	if s.beat.isClosed() {
		return nil, fmt.Errorf("%s: %w", key, ErrClosed)
	}
	for range maxRounds {
		a, err := c.begin(ctx)
		if a != nil || err != nil {
			return a, err
		}
	}
	return nil, fmt.Errorf("%s: %w", key, &InProgressError{}) // it stays locked, or keeps changing
}

// begin makes one claim: an attempt, an error, or neither when it has to look again.
func (c *call) begin(ctx context.Context) (*Attempt, error) {
	id := newAttempt() // before sending: it is how a lost answer is found again
	var sent time.Time
	var row idemdb.AttemptClaimRow
	err := alone(ctx, c.pool, func(q *idemdb.Queries) (err error) {
		sent = time.Now()
		row, err = q.AttemptClaim(ctx, idemdb.AttemptClaimParams{
			Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key,
			Fingerprint: c.fp[:], FingerprintVersion: fingerprintVersion, Attempt: id, LockID: c.key.lock(),
			LeaseUs: c.cfg.Lease.Microseconds(), RetentionUs: c.cfg.Retention.Microseconds(),
		})
		return err
	})
	switch {
	case err == nil && row.Granted:
		return c.hold(ctx, id, row.Previous, sent)
	case err == nil && row.Open && row.Free:
		return nil, nil
	case err == nil && row.Open:
		return c.standing(ctx, row)
	case err == nil, sqlState(err) == stateLockNotAvailable: // somebody is claiming it
		return nil, fmt.Errorf("%s: %w", c.key, &InProgressError{})
	case answered(err), pgconn.SafeToRetry(err):
		return nil, c.failure(ctx, "begin", err)
	default:
		return c.findClaim(ctx, id, sent, err)
	}
}

// standing is what a key that isn't free gives: a reply or an error.
func (c *call) standing(ctx context.Context, row idemdb.AttemptClaimRow) (*Attempt, error) {
	result, err := c.decide(finding{
		State: row.State, Same: row.Same, Status: row.Status, Headers: row.Headers, Body: row.Body,
		Codec: row.Codec, BodyLen: row.BodyLen, DoneUs: row.DoneUs, LeaseUs: row.LeaseUs,
	})
	if err != nil {
		return nil, err
	}
	return c.replayed(ctx, result.Reply), nil
}

// hold keeps a claim that was granted alive. A store that was closed meanwhile gives
// it back.
func (c *call) hold(ctx context.Context, id string, previous bool, sent time.Time) (*Attempt, error) {
	a := c.granted(ctx, id, previous, sent)
	if err := c.beat.add(a, sent); err != nil {
		_ = a.Release(ctx) // it lapses otherwise
		return nil, fmt.Errorf("%s: %w", c.key, err)
	}
	return a, nil
}

// findClaim finds out whether a claim without an answer was granted. "Not there" may
// still become "there" while the old backend works on, unless that one has said
// goodbye; so what isn't returned is given back.
func (c *call) findClaim(ctx context.Context, id string, sent time.Time, cause error) (*Attempt, error) {
	if ctx.Err() == nil {
		var previous bool
		err := alone(ctx, c.pool, func(q *idemdb.Queries) (err error) {
			previous, err = q.AttemptFind(ctx, idemdb.AttemptFindParams{
				Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key, Attempt: id,
				LeaseUs: c.cfg.Lease.Microseconds(),
			})
			return err
		})
		switch {
		case err == nil:
			return c.hold(ctx, id, previous, sent)
		case errors.Is(err, pgx.ErrNoRows) && sqlState(cause) != "":
			return nil, nil
		}
	}
	c.abandon(ctx, id)
	return nil, c.failure(ctx, "begin", cause)
}

// abandon gives a claim back that may have been granted, or could not be released,
// in the background: at once, after 1 s and after 5 s. After that it lapses.
func (c *call) abandon(ctx context.Context, id string) {
	ctx = context.WithoutCancel(ctx) // the caller's may be over: that is why we are here
	c.beat.inBackground(func() {
		for _, pause := range []time.Duration{0, time.Second, 4 * time.Second} {
			last := c.beat.sleep(pause)
			try, cancel := context.WithTimeout(ctx, cleanupTimeout)
			err := c.releaseRow(try, id)
			cancel()
			if err == nil || last {
				return
			}
		}
	})
}

// releaseRow gives a claim back: pgx.ErrNoRows when it isn't this attempt's, or
// doesn't run.
func (c *call) releaseRow(ctx context.Context, id string) error {
	return alone(ctx, c.pool, func(q *idemdb.Queries) error {
		_, err := q.AttemptRelease(ctx, idemdb.AttemptReleaseParams{
			Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key, Attempt: id,
			RetentionUs: c.cfg.Retention.Microseconds(),
		})
		return err
	})
}
