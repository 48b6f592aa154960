package pglock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// fencedPoll is how often a waiter looks at a lease that is over but still
	// fenced: nothing announces that commit. Most are about to commit when the lease
	// expires, so the first looks come sooner, from fencedFirst on, each twice as late.
	fencedPoll  = 20 * time.Millisecond
	fencedFirst = 3 * time.Millisecond
	// spreadEach is the room that each waiting client adds to the moments behind a
	// known expiry at which they come.
	spreadEach = 4 * time.Millisecond
)

// Acquire is TryAcquire, repeated until the lease is granted, opts.Wait is over
// or ctx ends. Waiters of one client for one name are served in their order, none
// that comes later tries before them, and only the first of them talks to the
// database. It is woken by the release, by
// the known expiry, and by a poll every PollInterval at the latest; it holds no
// connection while it sleeps.
//
// A ctx that ends while another holds the lease gives an error that matches both
// ErrHeld and ctx.Err(), with the *HeldError inside. A server that is gone is an
// error of the first try; once the lease was seen held by another, the waiting
// goes on over a restart of the server, a try a PollInterval. Any other error
// ends it.
func (c *Client) Acquire(ctx context.Context, name string, opts *AcquireOptions) (*Lease, error) {
	cl, err := c.claim(name, opts)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, cl)
}

// wait tries once and then stands in the queue; behind others of this client it
// stands at once.
func (c *Client) wait(ctx context.Context, cl claim) (lease *Lease, err error) {
	start := time.Now()
	var t *ticket
	if cl.wait >= 0 {
		t = c.waiting.joinBehind(cl.name)
	}
	if t == nil {
		lease, err = c.try(ctx, cl)
		held, busy := errors.AsType[*HeldError](err)
		if !busy || cl.wait < 0 {
			return lease, err
		}
		t = c.waiting.join(held)
	}
	defer func() { c.waiting.leave(t, lease) }() // also when a tracer panics
	w := waiter{client: c, claim: cl, ticket: t, start: start}
	ctx, end := c.trace.waitStart(ctx, w.held())
	lease, err = w.untilGranted(ctx)
	end(err)
	return lease, err
}

// waiter is one call of Acquire that stands in a queue.
type waiter struct {
	client *Client
	claim
	*ticket
	start time.Time
}

func (w *waiter) held() *HeldError { return w.client.waiting.heldBy(w.queue) }

// untilGranted stands in the queue, and at its head tries whenever the lease may
// be free. The head of a new queue first waits for its row and then tries AGAIN
// before it sleeps: a release that came between the first try and the row
// notified nobody.
func (w *waiter) untilGranted(ctx context.Context) (*Lease, error) {
	for _, before := range []<-chan struct{}{w.turn, w.queue.registered} {
		if err := w.until(ctx, before, math.MaxInt64); err != nil {
			return nil, err
		}
	}
	probe, err := w.client.waiting.mustProbe(w.queue)
	switch {
	case err != nil && w.client.isClosing():
		return nil, ErrClosed
	case err != nil && !serverGone(err): // else the next poll registers it
		return nil, fmt.Errorf("acquire %q: %w", w.name, err)
	}
	for {
		if !probe {
			if err := w.until(ctx, w.queue.wake, w.client.waiting.untilNextTry(w.queue)); err != nil {
				return nil, err
			}
		}
		probe = false
		lease, err := w.client.try(ctx, w.claim)
		if err == nil {
			return lease, nil
		}
		held, busy := errors.AsType[*HeldError](err)
		if busy {
			w.client.waiting.saw(w.queue, held)
			continue
		}
		signal(w.queue.wake) // it was not looked into: for the next one, wherever that waits
		if ctx.Err() != nil {
			return nil, gaveUp(ctx, w.held())
		}
		if !serverGone(err) {
			return nil, err
		}
		w.client.cfg.Logger.WarnContext(ctx, "waiting goes on without the server", "lease", w.name, "err", err)
		if err := w.until(ctx, nil, jitter(w.client.cfg.PollInterval)); err != nil {
			return nil, err
		}
		probe = true
	}
}

// until waits for an event, or for d, at most as long as the claim waits.
func (w *waiter) until(ctx context.Context, event <-chan struct{}, d time.Duration) error {
	left := w.left()
	if left <= 0 {
		return w.held()
	}
	timer := time.NewTimer(min(d, left))
	defer timer.Stop()
	select {
	case <-event:
	case <-timer.C:
		if d >= left {
			return w.held()
		}
	case <-ctx.Done():
		return gaveUp(ctx, w.held())
	case <-w.client.closing:
		return ErrClosed
	}
	return nil
}

// left is how long the claim still waits for another holder.
func (w *waiter) left() time.Duration {
	if w.wait == 0 {
		return math.MaxInt64
	}
	return w.wait - time.Since(w.start)
}

// sleep ends early, without an error, when ctx does.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.closing:
		return ErrClosed
	}
	return nil
}

// jitter is d or less, down to its half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func gaveUp(ctx context.Context, held *HeldError) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w: %w", held, ctx.Err(), cause)
	}
	return fmt.Errorf("%w: %w", held, ctx.Err())
}
