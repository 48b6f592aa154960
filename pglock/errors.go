package pglock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Sentinel errors. Errors that carry data are types that match them with
// errors.Is; the *pgconn.PgError below an error stays reachable with errors.As.
var (
	// ErrHeld says that another acquisition has the lease. It is an outcome, not
	// a failure. See HeldError.
	ErrHeld = errors.New("pglock: lease is held by another")

	// ErrLost is matched by each reason for which a lease can no longer be
	// trusted: ErrExpired, ErrSuperseded, ErrReleased.
	ErrLost = errors.New("pglock: lease is lost")
	// ErrExpired says that the lease was not renewed in time.
	ErrExpired error = &lossError{"pglock: lease expired"}
	// ErrSuperseded says that the database no longer has this acquisition: it was
	// taken over, or released by an operator.
	ErrSuperseded error = &lossError{"pglock: lease is superseded"}
	// ErrReleased says that the lease was released by its holder.
	ErrReleased error = &lossError{"pglock: lease is released"}

	// ErrFenced says that a write was refused because its token is not the
	// current one. See FencedError.
	ErrFenced = errors.New("pglock: fenced off")
	// ErrFenceTimeout says that a fenced transaction was ended because it took
	// longer than Config.FenceTimeout.
	ErrFenceTimeout = errors.New("pglock: fenced transaction exceeded its time limit")
	// ErrFenceMisplaced says that a fence was asked for where it would not
	// protect: outside a transaction, inside a savepoint, in a read-only one; or that
	// a statement in a fenced transaction ended it.
	ErrFenceMisplaced = errors.New("pglock: fence would not hold here")
	// ErrCommitUnknown says that COMMIT was sent, no answer came, and the database
	// could not say afterwards what became of it.
	ErrCommitUnknown = errors.New("pglock: outcome of the commit is unknown")

	// ErrNotMigrated says that the schema gatepost is missing or too old.
	ErrNotMigrated = errors.New("pglock: the schema gatepost is missing or too old; run: gatepost migrate up")
	// ErrClosed says that the client is closed or closing.
	ErrClosed = errors.New("pglock: client is closed")
	// ErrInvalidName says that a lease name can't be used.
	ErrInvalidName = errors.New("pglock: invalid lease name")
	// ErrInvalidConfig says which setting of a Config or of options can't be used.
	ErrInvalidConfig = errors.New("pglock: invalid configuration")
	// ErrInvalidGuard says why a table can't be guarded so.
	ErrInvalidGuard = errors.New("pglock: invalid guard")
	// ErrInvalidSequencer says that a text isn't a sequencer.
	ErrInvalidSequencer = errors.New("pglock: invalid sequencer")
)

// lossError is a reason of losing a lease; all of them match ErrLost.
type lossError struct{ text string }

func (e *lossError) Error() string        { return e.text }
func (e *lossError) Is(target error) bool { return target == ErrLost }

// HeldError tells who has a lease. It matches ErrHeld.
type HeldError struct {
	Name      string
	Holder    string    // who it is, for people; empty when it could not be read
	Token     int64     // the current fencing token
	Since     time.Time // when it was acquired, by the database's clock
	ExpiresAt time.Time // when it lapses unless renewed, by the database's clock
	// RetryAfter is how long it has left unless renewed; zero when Fenced.
	RetryAfter time.Duration
	// Fenced says that the lease is over, released or lapsed, but its row is
	// still locked: by an open fenced transaction of the last holder, or for a
	// moment by another acquisition.
	Fenced bool
}

func (e *HeldError) Error() string {
	switch {
	case e.Token == 0:
		return fmt.Sprintf("pglock: lease %q is being taken by another", e.Name)
	case e.Fenced:
		return fmt.Sprintf("pglock: lease %q is free, but a transaction fenced by its last token %d is still open", e.Name, e.Token)
	default:
		return fmt.Sprintf("pglock: lease %q is held by %s (token %d), for %s more unless renewed",
			e.Name, e.Holder, e.Token, e.RetryAfter.Round(time.Millisecond))
	}
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError says that a token was refused. It matches ErrFenced and, through
// Reason, ErrLost.
type FencedError struct {
	Name  string
	Token int64 // the token that was offered
	// Current is the token that the database has for the name; zero when unknown.
	Current int64
	// Reason is ErrSuperseded, ErrExpired or ErrReleased.
	Reason error
}

func (e *FencedError) Error() string {
	if e.Current == 0 || e.Current == e.Token {
		return fmt.Sprintf("pglock: lease %q: token %d is fenced off: %v", e.Name, e.Token, e.Reason)
	}
	return fmt.Sprintf("pglock: lease %q: token %d is fenced off: the current one is %d", e.Name, e.Token, e.Current)
}

// Is matches ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Unwrap returns the reason.
func (e *FencedError) Unwrap() error { return e.Reason }

// SQLSTATEs that this package tells apart.
const (
	stateInvalidSchema         = "3F000"
	stateUndefinedTable        = "42P01"
	stateUndefinedColumn       = "42703"
	stateUndefinedFunction     = "42883"
	stateInsufficientPrivilege = "42501"
	stateInvalidParameter      = "22023"
	stateWrongObjectType       = "42809"
	stateDatatypeMismatch      = "42804"
	stateDuplicateObject       = "42710"
	stateDependentObjects      = "2BP01"
	stateSyntaxError           = "42601"
	stateInvalidName           = "42602"
	stateReadOnly              = "25006"
	stateSerialization         = "40001"
	stateDeadlock              = "40P01"
	stateLockNotAvailable      = "55P03"
	stateCheckViolation        = "23514"
	stateNotSupported          = "0A000"

	classResources = "53" // the disk is full, no memory is left, no connection
	classSystem    = "58" // the disk can't be read or written
)

// unstorable says whether the database refused a value: the class of data
// exceptions (an escape or a number that jsonb has no room for, a text that the
// database's encoding has no character for), or a CHECK.
func unstorable(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "22") || state == stateCheckViolation
}

// translate names what a PostgreSQL error means for a user of this package.
// Everything else comes back as it is.
func translate(err error) error {
	switch sqlState(err) {
	case stateInvalidSchema, stateUndefinedTable, stateUndefinedColumn, stateUndefinedFunction:
		return fmt.Errorf("%w (%w)", ErrNotMigrated, err)
	default:
		return err
	}
}

// sqlState is the SQLSTATE of the error that the server sent, or empty. Drivers of
// database/sql have the method too.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// conflicted says that a statement met another one and nothing of it was done: none of
// ours should, but a trigger or a person at psql can make it so.
func conflicted(err error) bool {
	state := sqlState(err)
	return state == stateSerialization || state == stateDeadlock
}

// serverGone says whether an error is of a connection that broke or could not be
// made, or of a server that is starting, stopping, or at its end with what it runs on, or
// a standby, which refuses to BEGIN what writes as not supported; and so may pass.
func serverGone(err error) bool {
	if state := sqlState(err); state != "" {
		return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") ||
			strings.HasPrefix(state, classResources) || strings.HasPrefix(state, classSystem) || state == stateNotSupported
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	_, broken := errors.AsType[net.Error](err)
	return broken || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, pgconn.ErrConnClosed)
}

// answered says whether the outcome of what was sent is known: the server
// answered with an error that ended the transaction, or nothing was sent.
func answered(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.SeverityUnlocalized == "ERROR"
	}
	return pgconn.SafeToRetry(err)
}
