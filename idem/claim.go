package idem

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// Savepoints: of a claim in the caller's transaction, and of the effect.
const (
	savepointKey     = "SAVEPOINT gatepost_key"
	releaseKey       = "RELEASE SAVEPOINT gatepost_key"
	rollbackToKey    = "ROLLBACK TO SAVEPOINT gatepost_key"
	savepointEffect  = "SAVEPOINT gatepost_effect"
	rollbackToEffect = "ROLLBACK TO SAVEPOINT gatepost_effect"
)

// claim is a call's claim in one transaction, or what stands in its way.
type claim struct {
	*call
	tx        pgx.Tx
	attempt   string
	attemptNo int64   // 0: not claimed
	unseen    bool    // not where there is a row
	replay    *Result // instead of a claim
}

// take claims the key behind a round trip that opens the place for it, or finds the
// reply of an earlier call. It never ends without one of them or an error.
func (c *call) take(ctx context.Context, open *roundTrip) (*claim, error) {
	k := c.newClaim()
	for range maxRounds {
		claimed, err := k.try(ctx, open)
		if claimed || err != nil {
			return k, err
		}
		if err := k.clear(ctx); err != nil || k.replay != nil {
			return k, err
		}
		// The claim is in a savepoint of the same name then, but not in the last one,
		// which is the effect's.
		open = &roundTrip{tx: k.tx, send: k.tx.SendBatch}
	}
	return k, fmt.Errorf("%s: %w", c.key, &InProgressError{})
}

func (c *call) newClaim() *claim { return &claim{call: c, attempt: newAttempt()} }

func (k *claim) try(ctx context.Context, open *roundTrip) (claimed bool, err error) {
	open.after = []statement{{sql: savepointEffect}}
	defer func() { k.tx = open.tx }()
	row, err := idemdb.New(open).KeyClaim(ctx, idemdb.KeyClaimParams{
		Operation: k.key.Operation, Scope: string(k.key.Scope), Key: k.key.Key,
		Fingerprint: k.fp[:], FingerprintVersion: fingerprintVersion,
		Attempt: k.attempt, RetentionUs: (k.cfg.Retention + slack(k.cfg.Retention)).Microseconds(),
		Lock: k.key.lock(), LockTimeoutMs: asLockTimeout(k.patience()), Unseen: k.unseen,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, k.failure(ctx, "claim", err)
	}
	k.attemptNo = row.AttemptNo
	return true, k.awaitSteps(ctx, open.tx)
}

// awaitSteps waits for open steps of the attempt that had the row before, if one had:
// one more round trip then.
func (k *claim) awaitSteps(ctx context.Context, tx pgx.Tx) error {
	if k.attemptNo == 1 {
		return nil
	}
	err := idemdb.New(tx).KeyAwaitSteps(ctx, idemdb.KeyAwaitStepsParams{
		Operation: k.key.Operation, Scope: string(k.key.Scope), Key: k.key.Key, WaitMs: asLockTimeout(k.patience()),
	})
	if err != nil {
		return k.failure(ctx, "claim", err)
	}
	return nil
}

// slack is how much longer a record may live than it must. An effect that takes
// less leaves expires_at, which is indexed, as the claim set it.
func slack(retention time.Duration) time.Duration { return min(retention/100, time.Second) }

// clear finds out why there is no claim: k.replay, an error, or nothing any more,
// perhaps after waiting.
func (k *claim) clear(ctx context.Context) error {
	row, err := idemdb.New(k.tx).KeyTryLock(ctx, k.key.lock())
	switch {
	case err != nil:
		return k.failure(ctx, "claim", err)
	case !row.Had && !k.waits():
		return fmt.Errorf("%s: %w", k.key, &InProgressError{})
	case !row.Had:
		if err := k.wait(ctx); err != nil {
			return err
		}
	}
	k.replay, err = k.probe(ctx, k.tx)
	return err
}

// wait waits until the transaction that has the key's lock has ended.
func (k *claim) wait(ctx context.Context) error {
	err := idemdb.New(k.tx).KeyLock(ctx, idemdb.KeyLockParams{Lock: k.key.lock(), WaitMs: asLockTimeout(k.patience())})
	switch {
	case err == nil:
		return nil
	case sqlState(err) == stateQueryCanceled && ctx.Err() == nil: // statement_timeout is shorter
		return fmt.Errorf("%s: %w (%w)", k.key, &InProgressError{}, err)
	default:
		return k.failure(ctx, "wait for", err)
	}
}

// newAttempt identifies one claim: a random UUID.
func newAttempt() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, since Go 1.24
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	text := make([]byte, 0, 36)
	for i, part := range [][]byte{b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}
