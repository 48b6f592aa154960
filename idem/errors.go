package idem

import (
	"errors"
	"fmt"
	"time"
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
	ErrNotStored = errors.New("idem: what was written is not in the table")
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
	// ErrLapsed says that no heartbeat came through in time: the lease of an attempt is
	// over, and another may take the key.
	ErrLapsed = errors.New("idem: the lease lapsed")
	// ErrEnded says that an attempt was finished or released, or has nothing to run.
	ErrEnded = errors.New("idem: the attempt has ended")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("idem: the store is closed")
	// ErrUnavailable says that the database could not be asked, that it lacks what it
	// runs on, as on a full disk, or that the outcome of a COMMIT is unknown and could
	// not be found out. Nothing runs unprotected.
	ErrUnavailable = errors.New("idem: database unavailable")
	// ErrStale says that the row was changed since it was read. See StaleError.
	ErrStale = errors.New("idem: the row has another version")
	// ErrNoVersion says that the row's version is NULL, which equals none.
	ErrNoVersion = errors.New("idem: the row has no version")
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
