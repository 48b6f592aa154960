package idem

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// savepoint is one of CopyOnce's. It is gone when it has ended, whichever way: one of pgx's
// stays behind its Rollback, with all that comes later in the caller's transaction in it,
// where a fence of pglock's is refused.
type savepoint struct {
	tx   pgx.Tx
	name string
}

// The savepoints of CopyOnce: one around what goes straight, and one for a part of the rows,
// which may be in the other.
const (
	savepointCopy = "gatepost_copy"
	savepointPart = "gatepost_part"
)

func newSavepoint(ctx context.Context, tx pgx.Tx, name string) (*savepoint, error) {
	_, err := tx.Exec(ctx, "SAVEPOINT "+name)
	return &savepoint{tx, name}, err
}

func (s *savepoint) Commit(ctx context.Context) error {
	_, err := s.tx.Exec(ctx, "RELEASE SAVEPOINT "+s.name)
	return err
}

func (s *savepoint) Rollback(ctx context.Context) error {
	_, err := s.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+s.name+"; RELEASE SAVEPOINT "+s.name)
	return err
}
