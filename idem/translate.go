package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that this package tells apart.
const (
	stateUniqueViolation = "23505"
	stateExclusion       = "23P01"
	stateForeignKey      = "23503"
	stateNoSuchArbiter   = "42P10"
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"

	stateInvalidSchema    = "3F000"
	stateUndefinedTable   = "42P01"
	stateUndefinedColumn  = "42703"
	stateUndefinedObject  = "42704"
	stateLockNotAvailable = "55P03"
	stateQueryCanceled    = "57014"
	stateCheckViolation   = "23514"
	stateNotSupported     = "0A000"

	classDataException = "22" // also a character that the database's encoding lacks
	classResources     = "53" // the disk is full, no memory is left, no connection
	classSystem        = "58" // the disk can't be read or written
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

// failure names what went wrong in a statement on Gatepost's own tables.
func (c *call) failure(ctx context.Context, doing string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, c.key, translateOwn(ctx, err))
}

// translateOwn is translate for a statement on Gatepost's own tables.
func translateOwn(ctx context.Context, err error) error {
	switch state := sqlState(err); {
	case ctx.Err() != nil:
		return interrupted(ctx, err)
	case state == stateInvalidSchema, state == stateUndefinedTable, state == stateUndefinedColumn, state == stateUndefinedObject:
		return fmt.Errorf("%w (%w)", ErrNotMigrated, err)
	case state == stateLockNotAvailable:
		return fmt.Errorf("%w (%w)", &InProgressError{}, err)
	case state == stateCheckViolation: // only KeyFinish can; see there
		return fmt.Errorf("%w (%w)", ErrFenced, err)
	case strings.HasPrefix(state, classDataException):
		return fmt.Errorf("%w: the database has no room for it: %w", ErrInvalidKey, err)
	case serverGone(err), state == stateNotSupported: // BEGIN READ WRITE on a standby
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return translate(err)
	}
}

// interrupted is err of a ctx that has ended: it matches ctx.Err too.
func interrupted(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ctx.Err()) {
		return cmp.Or(err, ctx.Err())
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// retryable says whether a transaction met a concurrent one, and may succeed when
// it is repeated.
func retryable(err error) bool {
	state := sqlState(err)
	return state == stateSerialization || state == stateDeadlock
}

// passing says whether an error is of a moment: it says nothing of what was asked
// for, so no reply is made of it.
func passing(err error) bool {
	return retryable(err) || errors.Is(err, ErrRetryTx) || errors.Is(err, ErrUnavailable) || serverGone(err) || sqlState(err) == stateQueryCanceled ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// serverGone says whether an error is of a connection that broke or could not be
// made, or of a server that is starting, stopping, or at its end with what it runs on,
// and so may pass.
func serverGone(err error) bool {
	if state := sqlState(err); state != "" {
		return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") || exhausted(err)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	_, broken := errors.AsType[net.Error](err)
	return broken || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, pgconn.ErrConnClosed)
}

// exhausted says whether a server lacks what it runs on: another connection to it is no
// better.
func exhausted(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, classResources) || strings.HasPrefix(state, classSystem)
}

// answered says whether the outcome of what was sent is known: the server
// answered with an error that ended the transaction.
func answered(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.SeverityUnlocalized == "ERROR"
}

// noUniqueKey tells how to make the index that is missing.
func noUniqueKey(table pgx.Identifier, key []string) error {
	return fmt.Errorf("%w: CREATE UNIQUE INDEX ON %s (%s)", ErrNoUniqueKey, table.Sanitize(), columnList("", key))
}
