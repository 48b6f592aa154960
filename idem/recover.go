package idem

import (
	"context"
	"fmt"
	"time"
)

// Recovery is what is known of an effect outside the database that an earlier
// attempt may have had. The zero value is Unknown.
type Recovery struct {
	known bool
	reply *Reply
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

// BeginRecover is Begin that doesn't leave the caller alone with an attempt that
// somebody was at before (Previous): recover finds out, at the peer, whether that
// one's effect happened. The claim is held while it looks; its ctx ends when the
// claim is lost.
//
//   - Done(reply): the reply is stored, and the attempt replays it.
//   - Absent: the attempt is returned and goes on.
//   - Unknown, the zero value, and any error: nothing runs. The row stays running, to
//     be seen by whoever looks, until its lease has lapsed and somebody asks again;
//     ErrInProgress comes back, together with recover's error. A panic leaves the
//     same and goes on.
//
// Errors: those of Begin and of Finish, and recover's.
func (s *Store) BeginRecover(ctx context.Context, key Key, fp Fingerprint, recover func(context.Context) (Recovery, error)) (*Attempt, error) {
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
	recovery, err := a.ask(ctx, recover)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: recover: %w", key, a.inProgress(), err)
	case !recovery.known:
		return nil, fmt.Errorf("%s: %w", key, a.inProgress())
	case recovery.reply == nil:
		decided = true
		return a, nil
	}
	if err := a.Finish(ctx, *recovery.reply, nil); err != nil {
		return nil, err
	}
	return a.call.replayed(ctx, *recovery.reply), nil
}

// ask runs recover for as long as the attempt is held.
func (a *Attempt) ask(ctx context.Context, recover func(context.Context) (Recovery, error)) (Recovery, error) {
	work, cancel := a.Context(ctx)
	defer cancel()
	recovery, err := recover(work)
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
