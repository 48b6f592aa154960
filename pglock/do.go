package pglock

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lease, waiting for it as Acquire does, runs fn, and releases
// it after fn returned. fn's context is cancelled, with the reason as its cause,
// when the lease is lost or the client closes; fn is to stop then. Heartbeats go
// on until fn has returned, also when ctx ended before.
//
// Do returns fn's error, and the reason of a loss even when fn returned nil: the
// work then may have overlapped with another's, unless it was fenced. A name
// that could not be released, for want of a connection, is not an error of the
// work: it is logged, retried in the background, and lapses. When fn panics, the
// lease is released and the panic goes on.
func (c *Client) Do(ctx context.Context, name string, opts *AcquireOptions, fn func(context.Context, *Lease) error) error {
	cl, err := c.claim(name, opts)
	if err != nil {
		return err
	}
	cl.owned = true
	workCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, err := c.enter(cancel)
	if err != nil {
		return err
	}
	defer leave()

	lease, err := c.wait(workCtx, cl)
	if err != nil {
		if errors.Is(context.Cause(workCtx), ErrClosed) {
			return ErrClosed
		}
		return err
	}
	lease.cancelOnLoss(cancel)
	return lease.run(workCtx, fn)
}

// run calls fn and releases the lease after it, whichever way fn ends.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	defer func() {
		// The work's context may be over, and the name must be freed still.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		loss := l.Release(ctx)
		if !errors.Is(loss, ErrLost) || errors.Is(loss, ErrReleased) || errors.Is(err, loss) {
			return
		}
		if err == nil {
			err = loss
			return
		}
		err = fmt.Errorf("%w (%w)", err, loss)
	}()
	return fn(ctx, l)
}
