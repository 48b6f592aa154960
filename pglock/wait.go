package pglock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// fencedPoll is how often a waiter looks at a lease that is over but still
// fenced: nothing announces that commit.
const fencedPoll = 20 * time.Millisecond

// Acquire is TryAcquire, repeated until the lease is granted, opts.Wait is over
// or ctx ends. Waiters of one client for one name are served in their order, and
// only the first of them talks to the database. It is woken by the release, by
// the known expiry, and by a poll every PollInterval at the latest; it holds no
// connection while it sleeps.
//
// A ctx that ends while another holds the lease gives an error that matches both
// ErrHeld and ctx.Err(), with the *HeldError inside. Trouble with the database
// ends it too: it is not waited out.
func (c *Client) Acquire(ctx context.Context, name string, opts *AcquireOptions) (*Lease, error) {
	cl, err := c.claim(name, opts)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, cl)
}

// wait tries once and then stands in the queue.
func (c *Client) wait(ctx context.Context, cl claim) (*Lease, error) {
	start := time.Now()
	lease, err := c.try(ctx, cl)
	held, busy := errors.AsType[*HeldError](err)
	if !busy || cl.wait < 0 {
		return lease, err
	}
	t := c.waiting.join(cl.name)
	defer c.waiting.leave(ctx, t)
	w := waiter{client: c, claim: cl, ticket: t, held: held, start: start}
	if err := w.untilHead(ctx); err != nil {
		return nil, err
	}
	return w.untilGranted(ctx)
}

// waiter is one call of Acquire that stands in a queue.
type waiter struct {
	client *Client
	claim
	*ticket
	held  *HeldError // as last seen
	start time.Time
}

func (w *waiter) untilHead(ctx context.Context) error {
	timer, stop := w.timer(time.Hour)
	defer stop()
	for {
		select {
		case <-w.turn:
			return nil
		case <-timer:
			if w.left() <= 0 {
				return w.held
			}
		case <-ctx.Done():
			return gaveUp(ctx, w.held)
		case <-w.client.closing:
			return ErrClosed
		}
	}
}

// untilGranted is what the head of a queue does. It registers the queue and then
// tries AGAIN before it sleeps: a release that came between the first try and the
// registration notified nobody.
func (w *waiter) untilGranted(ctx context.Context) (*Lease, error) {
	if w.client.waiting.registers() {
		if err := w.client.waiting.keep(ctx, []string{w.name}, []int64{w.queue.id}); err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("acquire %q: %w", w.name, translate(err))
		}
	}
	for {
		lease, err := w.client.try(ctx, w.claim)
		if err == nil {
			return lease, nil
		}
		held, busy := errors.AsType[*HeldError](err)
		switch {
		case busy:
			w.held = held
		case ctx.Err() != nil:
			return nil, gaveUp(ctx, w.held)
		default:
			return nil, err
		}
		if err := w.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// sleep ends when the lease may be free.
func (w *waiter) sleep(ctx context.Context) error {
	if w.left() <= 0 {
		return w.held
	}
	timer, stop := w.timer(w.untilNextTry())
	defer stop()
	select {
	case <-w.queue.wake:
	case <-timer:
	case <-ctx.Done():
		return gaveUp(ctx, w.held)
	case <-w.client.closing:
		return ErrClosed
	}
	return nil
}

// timer fires after d, or when the claim's own wait is over.
func (w *waiter) timer(d time.Duration) (<-chan time.Time, func() bool) {
	timer := time.NewTimer(min(d, w.left()))
	return timer.C, timer.Stop
}

// left is how long the claim still waits for another holder.
func (w *waiter) left() time.Duration {
	if w.wait == 0 {
		return math.MaxInt64
	}
	return w.wait - time.Since(w.start)
}

// untilNextTry is the known expiry, with the clients that wait for it spread out
// so that they don't come back together; between that and the poll, a
// notification wakes.
func (w *waiter) untilNextTry() time.Duration {
	if w.held.Fenced {
		return jitter(fencedPoll)
	}
	return w.held.RetryAfter + rand.N(fencedPoll)
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
