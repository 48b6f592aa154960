package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

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

	// ErrInvalidConfig says which setting of a Config can't be used.
	ErrInvalidConfig = errors.New("idem: invalid configuration")
	// ErrInProgress says that another call under the key is running. Nothing was
	// done; come back later. See InProgressError.
	ErrInProgress = errors.New("idem: in progress")
	// ErrMismatch says that the key was used before for another request.
	ErrMismatch = errors.New("idem: the key was used for another request")
	// ErrReplayUnavailable says that the operation ran and its reply was too large
	// to keep. It never runs again. See ReplayUnavailableError.
	ErrReplayUnavailable = errors.New("idem: it was done, and its reply was not kept")
	// ErrInvalidReply says that a reply can't be stored, or that a stored one can't
	// be read as what it was asked for.
	ErrInvalidReply = errors.New("idem: invalid reply")
	// ErrFenced says that another attempt has taken the key over: what this one did
	// with it was rolled back.
	ErrFenced = errors.New("idem: superseded by another attempt")
	// ErrUnavailable says that the database could not be asked, or that the outcome
	// of a COMMIT is unknown and could not be found out. Nothing runs unprotected.
	ErrUnavailable = errors.New("idem: database unavailable")
	// ErrStale says that the row was changed since it was read. See StaleError.
	ErrStale = errors.New("idem: the row has another version")
	// ErrNotFound says that no such row, or key, is there.
	ErrNotFound = errors.New("idem: not found")
	// ErrNotMigrated says that the schema gatepost is missing or too old.
	ErrNotMigrated = errors.New("idem: the schema gatepost is missing or too old; run: gatepost migrate up")
)

// InProgressError tells when to come back. It matches ErrInProgress.
type InProgressError struct {
	// RetryAfter is how long the claim that runs has left; zero when it has no
	// lease, as in transaction mode, and may end at any moment.
	RetryAfter time.Duration
}

func (e *InProgressError) Error() string {
	if e.RetryAfter == 0 {
		return ErrInProgress.Error()
	}
	return fmt.Sprintf("%v: try again in %s", ErrInProgress, e.RetryAfter.Round(time.Millisecond))
}

// Is matches ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// ReplayUnavailableError tells what is known of a reply that was not kept. It
// matches ErrReplayUnavailable.
type ReplayUnavailableError struct {
	Status int
	Size   int64 // of the body, in bytes
	DoneAt time.Time
}

func (e *ReplayUnavailableError) Error() string {
	return fmt.Sprintf("%v: status %d, %d bytes, done at %s", ErrReplayUnavailable, e.Status, e.Size, e.DoneAt.UTC().Format(time.RFC3339))
}

// Is matches ErrReplayUnavailable.
func (e *ReplayUnavailableError) Is(target error) bool { return target == ErrReplayUnavailable }

// StaleError tells the version that is there. It matches ErrStale.
type StaleError struct{ Current int64 }

func (e *StaleError) Error() string { return fmt.Sprintf("%v: %d", ErrStale, e.Current) }

// Is matches ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// SQLSTATEs that this package tells apart.
const (
	stateUniqueViolation = "23505"
	stateNoSuchArbiter   = "42P10"
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"

	stateInvalidSchema    = "3F000"
	stateUndefinedTable   = "42P01"
	stateUndefinedColumn  = "42703"
	stateUndefinedObject  = "42704"
	stateLockNotAvailable = "55P03"
	stateCheckViolation   = "23514"

	stateTooManyConnections = "53300"
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
	switch state := sqlState(err); {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", doing, c.key, interrupted(ctx, err))
	case state == stateInvalidSchema, state == stateUndefinedTable, state == stateUndefinedColumn, state == stateUndefinedObject:
		err = fmt.Errorf("%w (%w)", ErrNotMigrated, err)
	case state == stateLockNotAvailable:
		err = fmt.Errorf("%w (%w)", &InProgressError{}, err)
	case state == stateCheckViolation:
		err = fmt.Errorf("%w (%w)", ErrFenced, err)
	case strings.HasPrefix(state, "22"):
		err = fmt.Errorf("%w: the database has no room for it: %w", ErrInvalidKey, err)
	case serverGone(err):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		err = translate(err)
	}
	return fmt.Errorf("%s %s: %w", doing, c.key, err)
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
	return retryable(err) || errors.Is(err, ErrRetryTx) || serverGone(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// serverGone says whether an error is of a connection that broke or could not be
// made, or of a server that is starting, stopping or full, and so may pass.
func serverGone(err error) bool {
	if state := sqlState(err); state != "" {
		return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") || state == stateTooManyConnections
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	_, broken := errors.AsType[net.Error](err)
	return broken || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, pgconn.ErrConnClosed)
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
