package idem

import (
	"context"
	"time"
)

// What can't be told apart from outside, or not without a database.
var (
	EncodeHeader = encodeHeader
	DecodeHeader = decodeHeader
	ValidateKey  = Key.validate
	Lock         = Key.lock
)

// Granted is an attempt that was asked for at a moment, without a heartbeat and without
// a database.
func Granted(ctx context.Context, s *Store, sent time.Time) *Attempt {
	return (&call{Store: s}).granted(ctx, "", false, sent)
}

// Deadline is until when the attempt is trusted.
func (a *Attempt) Deadline() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deadline
}

// Extend counts a renewal that was sent at a moment.
func (a *Attempt) Extend(sent time.Time) { a.extend(sent) }

// Lapse is what the timer does.
func (a *Attempt) Lapse() { a.lapse() }

// Pinned runs a call that decides by the row.
func (a *Attempt) Pinned(fn func() error) error { return a.pinned(fn) }

// RenewAtOnce has a store renew at most so many attempts in a statement. It is called
// before the first one begins.
func RenewAtOnce(s *Store, n int) { s.beat.atOnce = n }
