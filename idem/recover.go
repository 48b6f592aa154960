package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Recovery is what is known of an effect outside the database that an earlier
// attempt may have had. The zero value is Unknown.
type Recovery struct {
	known bool
	reply *Reply
	fn    func(pgx.Tx) error
}

// The answers of a recovery, besides Done.
var (
	// Absent says that the effect did not happen, and can't any more: the attempt
	// goes on.
	Absent = Recovery{known: true}
	// Unknown says that nobody knows: the key stays in progress.
	Unknown = Recovery{}
)

// Done says that the effect happened, and what to answer.
func Done(r Reply) Recovery { return Recovery{known: true, reply: &r} }

// DoneWith is Done where something belongs to the effect in this database that was to
// be written by Finish: fn writes it, as for Finish, in the transaction that stores the
// reply. When that fails, the row stays running until its lease has lapsed.
func DoneWith(r Reply, fn func(pgx.Tx) error) Recovery {
	return Recovery{known: true, reply: &r, fn: fn}
}

// BeginRecover is Begin that doesn't leave the caller alone with an attempt that
// somebody was at before (Previous): recover finds out, at the peer, whether that
// one's effect happened. The claim is held while it looks; its ctx ends when the
// claim is lost.
//
//   - Done(reply), DoneWith(reply, fn): the reply is stored, and the attempt replays it.
//   - Absent: the attempt is returned and goes on.
//   - Unknown, the zero value, and any error: nothing runs. The row stays running, to
//     be seen by whoever looks, until its lease has lapsed and somebody asks again;
//     ErrInProgress comes back, together with recover's error. A panic leaves the
//     same and goes on.
//
// Errors: those of Begin and of Finish, and recover's; ErrInvalidConfig without a recover,
// at the first call and not when it is needed.
func (s *Store) BeginRecover(ctx context.Context, key Key, fp Fingerprint, recover func(context.Context) (Recovery, error)) (*Attempt, error) {
	if recover == nil {
		return nil, fmt.Errorf("%s: %w: recover is nil; Begin leaves a previous attempt to its caller", key, ErrInvalidConfig)
	}
	a, err := s.Begin(ctx, key, fp)
	if err != nil || !a.Previous() {
		return a, err
	}
	decided := false
	defer func() {
		if !decided { // also when recover panics
			a.close(ctx)
		}
	}()
	work, cancel := a.Context(ctx)
	defer cancel() // after Finish: what DoneWith was given may use it
	recovery, err := a.ask(work, recover)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: recover: %w", key, a.inProgress(), err)
	case !recovery.known:
		return nil, fmt.Errorf("%s: %w", key, a.inProgress())
	case recovery.reply == nil:
		decided = true
		return a, nil
	}
	if err := a.Finish(ctx, *recovery.reply, recovery.fn); err != nil {
		return nil, err
	}
	return a.call.replayed(ctx, *recovery.reply), nil
}

// ask runs recover, whose ctx ends with the attempt.
func (a *Attempt) ask(ctx context.Context, recover func(context.Context) (Recovery, error)) (Recovery, error) {
	recovery, err := recover(ctx)
	if err == nil && a.Err() != nil && recovery.reply == nil {
		err = a.Err() // Absent is no longer this attempt's to act upon
	}
	return recovery, err
}

// inProgress tells when the lease of an attempt that is given up will have lapsed.
func (a *Attempt) inProgress() *InProgressError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &InProgressError{RetryAfter: max(0, time.Until(a.deadline)+a.call.margin())}
}
