package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// fencedPoll is how often a waiter looks at a lease that is over but still
// fenced: nothing announces that commit.
const fencedPoll = 20 * time.Millisecond

// Acquire is TryAcquire, repeated until the lease is granted, opts.Wait is over
// or ctx ends. It
// holds no connection while it sleeps, which is until the known expiry and at
// most PollInterval, with jitter. A ctx that ends while another holds the lease
// gives an error that matches both ErrHeld and ctx.Err(), with the *HeldError
// inside. Trouble with the database ends it too: it is not waited out.
func (c *Client) Acquire(ctx context.Context, name string, opts *AcquireOptions) (*Lease, error) {
	cl, err := c.claim(name, opts)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, cl)
}

func (c *Client) wait(ctx context.Context, cl claim) (*Lease, error) {
	var held *HeldError
	start := time.Now()
	for {
		lease, err := c.try(ctx, cl)
		if err == nil {
			return lease, nil
		}
		now, busy := errors.AsType[*HeldError](err)
		switch {
		case busy:
			held = now
		case ctx.Err() != nil && held != nil:
			return nil, gaveUp(ctx, held)
		default:
			return nil, err
		}
		pause := c.untilNextTry(held)
		if cl.wait != 0 {
			left := cl.wait - time.Since(start)
			if left <= 0 {
				return nil, held
			}
			pause = min(pause, left)
		}
		if err := c.sleep(ctx, pause); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, gaveUp(ctx, held)
		}
	}
}

// untilNextTry spreads the waiters of one lease out, so that they don't come
// back together.
func (c *Client) untilNextTry(held *HeldError) time.Duration {
	if held.Fenced {
		return jitter(fencedPoll)
	}
	expiry := held.RetryAfter + rand.N(fencedPoll)
	return min(jitter(c.cfg.PollInterval), expiry)
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
