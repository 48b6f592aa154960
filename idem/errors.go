package idem

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Sentinel errors. The *pgconn.PgError below an error stays reachable with
// errors.As.
var (
	// ErrInvalidKey says that a key, or a record's part of it, can't be used.
	ErrInvalidKey = errors.New("idem: invalid key")
	// ErrNoUniqueKey says that no unique index stands behind a key, so that
	// nothing would keep it from being inserted twice.
	ErrNoUniqueKey = errors.New("idem: no unique index on exactly the key's columns")
	// ErrNotStored says that rows were accepted and are not in the table.
	ErrNotStored = errors.New("idem: rows are not in the table after the INSERT")
	// ErrRetryTx says that the caller's transaction met a concurrent one and is
	// to be repeated from its beginning: SQLSTATE 40001 or 40P01.
	ErrRetryTx = errors.New("idem: retry the transaction")
)

// SQLSTATEs that this package tells apart.
const (
	stateUniqueViolation = "23505"
	stateNoSuchArbiter   = "42P10"
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"
)

// translate names what a PostgreSQL error means for a user of this package.
// Everything else comes back as it is.
func translate(err error) error {
	switch sqlState(err) {
	case stateSerialization, stateDeadlock:
		return fmt.Errorf("%w: %w", ErrRetryTx, err)
	case stateNoSuchArbiter:
		return fmt.Errorf("%w: %w", ErrNoUniqueKey, err)
	default:
		return err
	}
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// noUniqueKey tells how to make the index that is missing.
func noUniqueKey(table pgx.Identifier, key []string) error {
	return fmt.Errorf("%w: CREATE UNIQUE INDEX ON %s (%s)", ErrNoUniqueKey, table.Sanitize(), columnList("", key))
}
