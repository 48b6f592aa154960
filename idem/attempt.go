package idem

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// An Attempt is one claim of a key under a lease, made by Begin or BeginRecover, for
// an operation with effects outside the database. It is kept alive by heartbeats
// until Finish, Release or loss: end it, or the key stays claimed for as long as the
// process lives. It never comes back to life after that: begin again.
//
// It is safe for concurrent use.
type Attempt struct {
	call     *call  // Begin's
	id       string // tells this claim from every other one
	previous bool
	replay   *Reply // instead of a claim

	over context.Context //nolint:containedctx // the attempt's own end, nobody's call
	end  context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time // trusted until, by the local monotonic clock
	timer    *time.Timer
	// pins counts the calls that keep the row locked, or are about to: they decide by
	// the row what has become of the attempt, and the clock doesn't.
	pins int
	// closed is set by Finish and Release.
	closed bool
}

// granted is a claim that was asked for at the moment sent.
func (c *call) granted(ctx context.Context, id string, previous bool, sent time.Time) *Attempt {
	a := &Attempt{call: c, id: id, previous: previous}
	a.over, a.end = context.WithCancelCause(context.WithoutCancel(ctx)) // ctx bounds Begin only
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deadline = sent.Add(c.cfg.Lease - c.margin())
	a.timer = time.AfterFunc(time.Until(a.deadline), a.lapse)
	return a
}

// replayed is what Begin returns for a key that is done.
func (c *call) replayed(ctx context.Context, r Reply) *Attempt {
	a := &Attempt{call: c, replay: &r, closed: true}
	a.over, a.end = context.WithCancelCause(context.WithoutCancel(ctx))
	a.end(ErrEnded)
	return a
}

// margin is how long before the database's expiry an attempt counts as lost.
func (s *Store) margin() time.Duration { return s.cfg.Lease / 10 }

// Replay is the reply that an earlier call stored, and true: then nothing is to run,
// and there is nothing to finish or to release.
func (a *Attempt) Replay() (Reply, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.replay == nil {
		return Reply{}, false
	}
	return *a.replay, true
}

// Previous says that somebody was here before: an attempt that lapsed or was
// released. What it did outside the database may have happened.
func (a *Attempt) Previous() bool { return a.previous }

// ExternalKey is the ExternalKey of the attempt's key: the same for all attempts.
func (a *Attempt) ExternalKey(call ...string) string { return a.call.key.ExternalKey(call...) }

// Done is closed when the attempt is over. When it is lost, that is before its lease
// expires in the database, by a local timer, also while the database doesn't answer.
// A process that was stopped learns it only when it runs again.
func (a *Attempt) Done() <-chan struct{} { return a.over.Done() }

// Err is nil while the claim is held, then ErrLapsed (no heartbeat came through in
// time), ErrFenced (another attempt has the key), ErrClosed (the store was closed)
// or ErrEnded (finished, released, or nothing to run).
func (a *Attempt) Err() error { return context.Cause(a.over) }

// Context is a copy of ctx that is also cancelled when the attempt is over, with Err
// as its cause: for the work. Call cancel when the work is done.
func (a *Attempt) Context(ctx context.Context) (work context.Context, cancel context.CancelFunc) {
	work, stop := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(a.over, func() { stop(context.Cause(a.over)) })
	return work, func() {
		unhook()
		stop(nil)
	}
}

// outliving is ctx for what comes after an attempt was ended by its owner: ctx may be a
// Context of it, which ends by that, and must not take the rest along. The rest has
// cleanupTimeout then, since such a ctx doesn't tell any more whether its caller waits.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	rest, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	limit := time.AfterFunc(math.MaxInt64, func() { stop(context.DeadlineExceeded) })
	follow := func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrEnded) {
			limit.Reset(cleanupTimeout)
		} else {
			stop(cause)
		}
	}
	if ctx.Err() != nil {
		follow()
	}
	unhook := context.AfterFunc(ctx, follow)
	return rest, func() {
		unhook()
		limit.Stop()
		stop(nil)
	}
}

// extend counts a renewal that was sent at that moment.
func (a *Attempt) extend(sent time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	deadline := sent.Add(a.call.cfg.Lease - a.call.margin())
	if a.Err() == nil && deadline.After(a.deadline) {
		a.deadline = deadline
		a.timer.Reset(time.Until(deadline))
	}
}

// lapse is called by the timer, which may have been outrun by a renewal.
func (a *Attempt) lapse() {
	a.mu.Lock()
	left := time.Until(a.deadline)
	if left > 0 && a.Err() == nil {
		a.timer.Reset(left)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	a.lose(ErrLapsed)
}

// lose ends the attempt for a reason that its owner didn't give, unless a call is
// finding out by the row.
func (a *Attempt) lose(reason error) {
	a.mu.Lock()
	if a.pins > 0 || a.Err() != nil {
		a.mu.Unlock()
		return
	}
	a.finishLocally(reason)
	a.mu.Unlock()
	a.call.beat.remove(a)
	a.call.cfg.Logger.Error("attempt lost", "operation", a.call.key.Operation, "scope", string(a.call.key.Scope), "err", reason)
}

// finishLocally ends it; mu is held.
func (a *Attempt) finishLocally(reason error) {
	a.timer.Stop()
	a.end(reason)
}

// pinned runs a call that decides by the row: meanwhile the attempt is not lost by the
// clock, or by what a heartbeat sees. It is ErrEnded after Finish and Release.
func (a *Attempt) pinned(decide func() error) error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return a.named(ErrEnded)
	}
	a.pins++
	a.mu.Unlock()
	defer a.unpin() // also when decide panics
	return decide()
}

// unpin lets the clock count again.
func (a *Attempt) unpin() {
	a.mu.Lock()
	a.pins--
	if a.Err() == nil {
		a.timer.Reset(max(0, time.Until(a.deadline)))
	}
	a.mu.Unlock()
	if a.call.beat.isClosed() {
		a.lose(ErrClosed)
	}
}

func (a *Attempt) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// close ends the attempt by its owner's word and waits for the heartbeats, if it
// was the last that had any. First says that it wasn't closed before.
func (a *Attempt) close(ctx context.Context) (first bool) {
	a.mu.Lock()
	first = !a.closed
	a.closed = true
	if a.Err() == nil {
		a.finishLocally(ErrEnded)
	}
	a.mu.Unlock()
	a.call.beat.removeAndWait(ctx, a)
	return first
}
