package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DBTX is what a fence needs of a transaction. A pgx.Tx is one, and so is a
// *pgx.Conn with a transaction open on it.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Fence makes the rest of a transaction of the caller's own conditional on a
// lease: nil means that the sequencer's token is the current one and stays it
// until the transaction ends, since a takeover waits for that. Call it first in
// the transaction, before any write and any savepoint, and write in the same
// transaction. Heartbeats of the lease go on meanwhile.
//
// It locks the lease's row FOR KEY SHARE and presents the fence to guarded tables, by
// the database's function gatepost.try_fence: one round trip, one row lock, and a
// read of pg_locks; one round trip more for a tx that is no pgx.Tx. It leaves
// the transaction's timeouts alone, so a transaction that hangs keeps a takeover
// out for as long as it hangs: Lease.InTx bounds it and costs less.
//
// Errors: *FencedError when refused: roll back then; ErrFenceMisplaced outside a
// transaction, inside a savepoint and in a read-only transaction. At REPEATABLE
// READ and SERIALIZABLE, with a snapshot that is older than the call, a lease
// that was renewed since can look expired: retry the whole transaction.
func Fence(ctx context.Context, tx DBTX, seq Sequencer) error {
	if seq.IsZero() {
		return fmt.Errorf("fence: %w: it is the zero value", ErrInvalidSequencer)
	}
	if err := needTransaction(tx); err != nil {
		return fmt.Errorf("fence %q: %w", seq.name, err)
	}
	q := lockdb.New(tx)
	row, err := q.LeaseFenceTry(ctx, lockdb.LeaseFenceTryParams{
		Name: seq.name, Slot: seq.slot, Token: seq.token, Nonce: seq.nonce,
	})
	if err != nil {
		return refusal(ctx, q, seq, err)
	}
	if row.Xids > 1 {
		return fmt.Errorf("fence %q: %w: it is inside a savepoint, and ROLLBACK TO would undo it; fence first", seq.name, ErrFenceMisplaced)
	}
	if _, ok := tx.(pgx.Tx); !ok {
		if err := sameTransaction(ctx, q, row.Xid); err != nil {
			return fmt.Errorf("fence %q: %w", seq.name, err)
		}
	}
	return seq.refusedAs(row.Verdict, row.Current)
}

// refusedAs is the refusal that gatepost.try_fence told of; nil when it is none.
func (s Sequencer) refusedAs(verdict string, current int64) error {
	refused := &FencedError{Name: s.name, Token: s.token, Current: current, Reason: ErrSuperseded}
	switch verdict {
	case "live":
		return nil
	case "expired":
		refused.Reason = ErrExpired
	case "released":
		refused.Reason = ErrReleased
	}
	return refused
}

// FenceAll is Fence for several leases, locked in the order of their names,
// whatever order they are given in. The first refusal ends it.
func FenceAll(ctx context.Context, tx DBTX, seqs ...Sequencer) error {
	seqs, err := inLockOrder(seqs)
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		if err := Fence(ctx, tx, seq); err != nil {
			return err
		}
	}
	return nil
}

// needTransaction refuses what is known to run each statement by itself: the
// lock would be gone before the write.
func needTransaction(tx DBTX) error {
	var idle bool
	switch db := tx.(type) {
	case *pgxpool.Pool:
		idle = true
	case *pgxpool.Conn:
		idle = db.Conn().PgConn().TxStatus() == 'I'
	case *pgx.Conn:
		idle = db.PgConn().TxStatus() == 'I'
	}
	if idle {
		return fmt.Errorf("%w: there is no transaction open", ErrFenceMisplaced)
	}
	return nil
}

// sameTransaction holds a second statement against the first, for handles that
// can't be asked.
func sameTransaction(ctx context.Context, q *lockdb.Queries, xid string) error {
	now, err := q.TransactionID(ctx)
	if err != nil {
		return err
	}
	if now != xid {
		return fmt.Errorf("%w: the handle runs each statement in a transaction of its own", ErrFenceMisplaced)
	}
	return nil
}

// errNotLive marks a fence that found its token, on a lease that has expired.
var errNotLive = errors.New("pglock: not live")

// refusal names why a fence did not pass.
func refusal(ctx context.Context, q *lockdb.Queries, seq Sequencer, err error) error {
	switch {
	case errors.Is(err, ErrFenced): // and named already
		return err
	case errors.Is(err, errNotLive):
		return &FencedError{Name: seq.name, Token: seq.token, Current: seq.token, Reason: ErrExpired}
	case errors.Is(err, pgx.ErrNoRows):
		return superseded(ctx, q, seq)
	case sqlState(err) == stateSerialization: // the row's key changed after the snapshot
		return &FencedError{Name: seq.name, Token: seq.token, Reason: ErrSuperseded}
	case sqlState(err) == stateReadOnly:
		return fmt.Errorf("fence %q: %w: the transaction is read-only: %w", seq.name, ErrFenceMisplaced, err)
	default:
		return fmt.Errorf("fence %q: %w", seq.name, translate(err))
	}
}

// superseded reads the current token for the message.
func superseded(ctx context.Context, q *lockdb.Queries, seq Sequencer) error {
	refused := &FencedError{Name: seq.name, Token: seq.token, Reason: ErrSuperseded}
	row, err := q.LeaseToken(ctx, lockdb.LeaseTokenParams{Name: seq.name, Slot: seq.slot, Nonce: seq.nonce})
	if err != nil {
		return refused
	}
	refused.Current = row.Token
	switch {
	case row.Token != seq.token: // another nonce is another acquisition, too
	case row.Released:
		refused.Reason = ErrReleased
	case row.Mine:
		refused.Reason = ErrExpired
	}
	return refused
}
