package idem

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// Savepoints: of a claim in the caller's transaction, and of the effect.
const (
	savepointKey     = "SAVEPOINT gatepost_key"
	releaseKey       = "RELEASE SAVEPOINT gatepost_key"
	rollbackToKey    = "ROLLBACK TO SAVEPOINT gatepost_key"
	savepointEffect  = "SAVEPOINT gatepost_effect"
	releaseEffect    = "RELEASE SAVEPOINT gatepost_effect"
	rollbackToEffect = "ROLLBACK TO SAVEPOINT gatepost_effect"
)

// claim is a call's claim in one transaction, or what stands in its way.
type claim struct {
	*call
	tx        pgx.Tx
	attempt   string
	attemptNo int64   // 0: not claimed
	replay    *Result // instead of a claim
}

// take claims the key behind a round trip that opened the place for it, or finds
// the reply of an earlier call. It never ends without one of them or an error.
func (c *call) take(ctx context.Context, open *roundTrip) (*claim, error) {
	k := &claim{call: c, attempt: newAttempt()}
	open.after = []statement{{sql: savepointEffect}}
	for range maxRounds {
		row, err := k.try(ctx, open)
		k.tx = open.tx
		if err != nil {
			return k, c.failure(ctx, "claim", err)
		}
		if k.attemptNo = row.AttemptNo; k.attemptNo > 0 {
			return k, nil
		}
		if err := k.clear(ctx, row.Busy); err != nil || k.replay != nil {
			return k, err
		}
		// The claim must be outside of the effect's savepoint.
		open = &roundTrip{tx: k.tx, send: k.tx.SendBatch, before: []statement{{sql: releaseEffect}}, after: open.after}
	}
	return k, fmt.Errorf("%s: %w", c.key, &InProgressError{})
}

func (k *claim) try(ctx context.Context, open *roundTrip) (idemdb.KeyClaimRow, error) {
	return idemdb.New(open).KeyClaim(ctx, idemdb.KeyClaimParams{
		Operation: k.key.Operation, Scope: string(k.key.Scope), Key: k.key.Key,
		Fingerprint: k.fp[:], FingerprintVersion: fingerprintVersion,
		Attempt: k.attempt, RetentionUs: k.cfg.Retention.Microseconds(),
		Lock: k.key.lock(), LockTimeoutMs: asLockTimeout(k.patience()),
	})
}

// clear finds out why there is no claim, or waits until there may be one.
func (k *claim) clear(ctx context.Context, busy bool) (err error) {
	switch {
	case !busy:
		k.replay, err = k.probe(ctx, k.tx)
		return err
	case !k.waits():
		return fmt.Errorf("%s: %w", k.key, &InProgressError{})
	}
	err = idemdb.New(k.tx).KeyLock(ctx, idemdb.KeyLockParams{Lock: k.key.lock(), WaitMs: asLockTimeout(k.patience())})
	if err != nil {
		return k.failure(ctx, "wait for", err)
	}
	return nil
}

// newAttempt identifies one claim.
func newAttempt() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, since Go 1.24
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
