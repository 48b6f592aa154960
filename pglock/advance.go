package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// Advance is the fence for a resource in another database than the lease, or for
// tokens of another lock service (an etcd revision, the transitions of a
// Kubernetes lease). It accepts a token when none above it was accepted for the
// resource before, in the transaction of the write, and holds a higher one off
// until that transaction ends. Call it first in the transaction, and outside any
// savepoint. The database needs Gatepost's schema and no lease.
//
// It is weaker than Fence: it knows nothing of the lease, so a stale token is
// accepted until a higher one has come. One round trip for a token above the
// mark, which updates one row; two for an equal one, which locks it FOR SHARE, so
// that writers with the same token run side by side; two more for a tx that is no
// pgx.Tx.
//
// Errors: *FencedError with the resource as its Name when a higher token was
// accepted before: roll back then, which gives the lock on the mark back; ErrFenceMisplaced outside a transaction; ErrInvalidName for a
// resource that is no name; ErrInvalidConfig for a negative token. At REPEATABLE
// READ and SERIALIZABLE a mark that moved after the snapshot, up to the same token
// perhaps, is PostgreSQL's serialization failure, 40001: retry the transaction.
func Advance(ctx context.Context, tx DBTX, resource string, token int64) error {
	if err := validateName(resource); err != nil {
		return fmt.Errorf("advance: %w", err)
	}
	if token < 0 {
		return fmt.Errorf("advance %q: %w: the token %d is negative", resource, ErrInvalidConfig, token)
	}
	if err := needTransaction(tx); err != nil {
		return fmt.Errorf("advance %q: %w", resource, err)
	}
	q := lockdb.New(tx)
	if _, ok := tx.(pgx.Tx); !ok {
		if err := oneTransaction(ctx, q); err != nil {
			return fmt.Errorf("advance %q: %w", resource, err)
		}
	}
	_, err := q.FenceAdvance(ctx, lockdb.FenceAdvanceParams{Resource: resource, Token: token})
	if err == nil {
		return nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return notAdvanced(resource, token, err)
	}
	mark, err := q.FenceShare(ctx, resource)
	switch {
	case err != nil:
		return notAdvanced(resource, token, err)
	case mark > token:
		return &FencedError{Name: resource, Token: token, Current: mark, Reason: ErrSuperseded}
	default:
		return nil
	}
}

// oneTransaction asks a handle that can't be asked otherwise whether two
// statements are in the same transaction.
func oneTransaction(ctx context.Context, q *lockdb.Queries) error {
	xid, err := q.TransactionID(ctx)
	if err != nil {
		return translate(err)
	}
	return sameTransaction(ctx, q, xid)
}

func notAdvanced(resource string, token int64, err error) error {
	if sqlState(err) == stateReadOnly {
		return fmt.Errorf("advance %q: %w: the transaction is read-only: %w", resource, ErrFenceMisplaced, err)
	}
	return fmt.Errorf("advance %q: %w", resource, translate(err))
}
