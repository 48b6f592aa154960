package pglock

import (
	"context"
	"time"
)

// Tracer traces acquisitions, and whatever else of this file it also implements:
// WaitTracer, RenewTracer, LossTracer, ReleaseTracer, FenceTracer. The form is
// pgx's: the context that a Start returns is the one of what follows, and of its
// End. Methods are called from several goroutines, and hold up what they trace. A nil
// pointer in the interface is not none: it is called.
type Tracer interface {
	// TraceAcquireStart is called before each try to acquire, of which a waiter
	// makes several.
	TraceAcquireStart(ctx context.Context, data TraceAcquireStartData) context.Context
	TraceAcquireEnd(ctx context.Context, data TraceAcquireEndData)
}

// TraceAcquireStartData is a try to acquire.
type TraceAcquireStartData struct {
	Name, Holder string
	TTL          time.Duration
}

// TraceAcquireEndData is what became of it: a token, or an error. ErrHeld is an
// outcome and not a failure.
type TraceAcquireEndData struct {
	Name  string
	Token int64
	Err   error
}

// WaitTracer traces the waiting of Acquire and Do for another holder.
type WaitTracer interface {
	TraceWaitStart(ctx context.Context, data TraceWaitStartData) context.Context
	TraceWaitEnd(ctx context.Context, data TraceWaitEndData)
}

// TraceWaitStartData says who is waited for.
type TraceWaitStartData struct{ Held *HeldError }

// TraceWaitEndData says how it ended.
type TraceWaitEndData struct {
	Name   string
	Waited time.Duration
	Err    error
}

// RenewTracer traces renewals, each of one or more leases.
type RenewTracer interface {
	TraceRenewStart(ctx context.Context, data TraceRenewStartData) context.Context
	TraceRenewEnd(ctx context.Context, data TraceRenewEndData)
}

// TraceRenewStartData is one statement.
type TraceRenewStartData struct{ Leases int }

// TraceRenewEndData is how many leases it extended. The others are lost, or are
// tried again; after an error all are tried again.
type TraceRenewEndData struct {
	Renewed int
	Err     error
}

// LossTracer is told of leases that were lost, not of those that were released.
type LossTracer interface {
	TraceLoss(ctx context.Context, data TraceLossData)
}

// TraceLossData says which lease, how long it was held, and why it was lost:
// ErrExpired or ErrSuperseded.
type TraceLossData struct {
	Name   string
	Token  int64
	Held   time.Duration
	Reason error
}

// ReleaseTracer traces releases.
type ReleaseTracer interface {
	TraceReleaseStart(ctx context.Context, data TraceReleaseStartData) context.Context
	TraceReleaseEnd(ctx context.Context, data TraceReleaseEndData)
}

// TraceReleaseStartData is the lease and how long it was held.
type TraceReleaseStartData struct {
	Name  string
	Token int64
	Held  time.Duration
}

// TraceReleaseEndData is what Release returned.
type TraceReleaseEndData struct {
	Name string
	Err  error
}

// FenceTracer traces the beginning of fenced transactions. A Fence in a
// transaction of the caller's own has no client, and so no tracer.
type FenceTracer interface {
	TraceFenceStart(ctx context.Context, data TraceFenceStartData) context.Context
	TraceFenceEnd(ctx context.Context, data TraceFenceEndData)
}

// TraceFenceStartData is the first lease by name, and how many there are.
type TraceFenceStartData struct {
	Name   string
	Token  int64
	Leases int
}

// TraceFenceEndData says whether the transaction began, or why not.
type TraceFenceEndData struct {
	Name string
	Err  error
}

// tracers is a Tracer taken apart, so that each use is one comparison.
type tracers struct {
	acquire Tracer
	wait    WaitTracer
	renew   RenewTracer
	loss    LossTracer
	release ReleaseTracer
	fence   FenceTracer
}

func newTracers(t Tracer) (all tracers) {
	all.acquire = t
	all.wait, _ = t.(WaitTracer)
	all.renew, _ = t.(RenewTracer)
	all.loss, _ = t.(LossTracer)
	all.release, _ = t.(ReleaseTracer)
	all.fence, _ = t.(FenceTracer)
	return all
}

// Each start returns the context to go on with and the end to call.

func (t tracers) acquireStart(ctx context.Context, data TraceAcquireStartData) (context.Context, func(*Lease, error)) {
	if t.acquire == nil {
		return ctx, func(*Lease, error) {}
	}
	ctx = t.acquire.TraceAcquireStart(ctx, data)
	return ctx, func(l *Lease, err error) {
		end := TraceAcquireEndData{Name: data.Name, Err: err}
		if l != nil {
			end.Token = l.Token()
		}
		t.acquire.TraceAcquireEnd(ctx, end)
	}
}

func (t tracers) waitStart(ctx context.Context, held *HeldError) (context.Context, func(error)) {
	if t.wait == nil {
		return ctx, func(error) {}
	}
	start := time.Now()
	ctx = t.wait.TraceWaitStart(ctx, TraceWaitStartData{Held: held})
	return ctx, func(err error) {
		t.wait.TraceWaitEnd(ctx, TraceWaitEndData{Name: held.Name, Waited: time.Since(start), Err: err})
	}
}

func (t tracers) renewStart(ctx context.Context, leases int) (context.Context, func([]outcome, error)) {
	if t.renew == nil {
		return ctx, func([]outcome, error) {}
	}
	ctx = t.renew.TraceRenewStart(ctx, TraceRenewStartData{Leases: leases})
	return ctx, func(outcomes []outcome, err error) {
		end := TraceRenewEndData{Err: err}
		for _, o := range outcomes {
			if o == renewed {
				end.Renewed++
			}
		}
		t.renew.TraceRenewEnd(ctx, end)
	}
}

func (t tracers) releaseStart(ctx context.Context, data TraceReleaseStartData) (context.Context, func(error)) {
	if t.release == nil {
		return ctx, func(error) {}
	}
	ctx = t.release.TraceReleaseStart(ctx, data)
	return ctx, func(err error) { t.release.TraceReleaseEnd(ctx, TraceReleaseEndData{Name: data.Name, Err: err}) }
}

func (t tracers) fenceStart(ctx context.Context, data TraceFenceStartData) (context.Context, func(error)) {
	if t.fence == nil {
		return ctx, func(error) {}
	}
	ctx = t.fence.TraceFenceStart(ctx, data)
	return ctx, func(err error) { t.fence.TraceFenceEnd(ctx, TraceFenceEndData{Name: data.Name, Err: err}) }
}
