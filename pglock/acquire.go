package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// claim is a validated wish for a lease.
type claim struct {
	name string
	data *string
	wait time.Duration
	timing
	owned bool // by a call of Do
}

func (c *Client) claim(name string, opts *AcquireOptions) (claim, error) {
	if err := validateName(name); err != nil {
		return claim{}, err
	}
	if opts == nil {
		opts = &AcquireOptions{}
	}
	if err := validateData(opts.Data); err != nil {
		return claim{}, err
	}
	t, err := c.cfg.timing(opts.TTL)
	if err != nil {
		return claim{}, err
	}
	cl := claim{name: name, wait: opts.Wait, timing: t}
	if len(opts.Data) > 0 {
		text := string(opts.Data)
		cl.data = &text
	}
	return cl, nil
}

// TryAcquire takes the lease if it is free or lapsed, and keeps it alive with
// heartbeats until Release, Close or loss. It never waits for another holder:
// a busy lease is a *HeldError, and nothing was written or locked for it.
//
// ctx bounds the call and not the lease. When it ends, or the connection
// breaks, with the outcome unknown, the lease is looked up and either returned
// or given back in the background.
//
// One round trip on a pooled connection when it is granted, two when it is held,
// three the first time that a name is taken; and the same again when the row was
// locked for a moment. Where sessions don't begin READ COMMITTED and READ WRITE, the
// first acquisition of a client costs one more, to learn that.
//
// Errors: ErrHeld, ErrInvalidName, ErrInvalidConfig, ErrNotMigrated, ErrClosed.
func (c *Client) TryAcquire(ctx context.Context, name string, opts *AcquireOptions) (*Lease, error) {
	cl, err := c.claim(name, opts)
	if err != nil {
		return nil, err
	}
	return c.try(ctx, cl)
}

// try makes one attempt, and a second when the row reads as free but could not
// be locked: a heartbeat, another acquisition or the garbage collection may
// have had it for a moment. If it still can't, a fence holds it. A conflict, which
// undid the first one, is a reason for a second too.
func (c *Client) try(ctx context.Context, cl claim) (lease *Lease, err error) {
	ctx, end := c.trace.acquireStart(ctx, TraceAcquireStartData{Name: cl.name, Holder: c.cfg.Holder, TTL: cl.ttl})
	defer func() { end(lease, err) }()
	lease, err = c.tryOnce(ctx, cl)
	if held, ok := errors.AsType[*HeldError](err); ok && held.Fenced || conflicted(err) {
		return c.tryOnce(ctx, cl)
	}
	return lease, err
}

func (c *Client) tryOnce(ctx context.Context, cl claim) (*Lease, error) {
	if c.isClosing() {
		return nil, ErrClosed
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %q: %w", cl.name, err)
	}
	seq := Sequencer{name: cl.name, nonce: newNonce()} // before sending: it is how a lost answer is found again
	sent := time.Now()
	token, err := c.grant(ctx, conn.Conn(), cl, seq)
	late := errors.Is(err, errLate)
	switch {
	case err == nil:
		conn.Release()
		seq.token = token
		return c.hold(cl, seq, sent)
	case late:
		conn.Release()
		seq.token = token
		return nil, c.handBack(ctx, cl, seq)
	case errors.Is(err, ErrHeld):
		conn.Release()
		return nil, err
	case unstorable(err):
		conn.Release()
		return nil, fmt.Errorf("acquire %q: %w: the database can't store the name, the holder or Data: %w", cl.name, ErrInvalidConfig, err)
	case answered(err):
		giveBack(ctx, conn)
		return nil, fmt.Errorf("acquire %q: %w", cl.name, translate(err))
	case ctx.Err() != nil:
		conn.Release() // closed by pgx; the caller doesn't wait for that
		c.abandon(ctx, seq, cl.ttl)
		return nil, fmt.Errorf("acquire %q: %w", cl.name, err)
	default:
		discard(ctx, conn)
		return c.recoverGrant(ctx, cl, seq, sent, err)
	}
}

// hold registers a lease that was granted. A client that was closed meanwhile
// gives it back.
func (c *Client) hold(cl claim, seq Sequencer, sent time.Time) (*Lease, error) {
	l := newLease(c, cl, seq, sent)
	c.mu.Lock()
	closing := c.isClosing() && !cl.owned // Close waits for Do, which releases its own
	if !closing && l.Err() == nil {       // a short one can be over already
		c.leases[l] = struct{}{}
	}
	c.mu.Unlock()
	if closing {
		_ = l.lose(ErrReleased)
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout) //nolint:forbidigo // the caller's may be over
		defer cancel()
		_ = c.releaseRow(ctx, c.onApp, seq, "")
		return nil, ErrClosed
	}
	c.beat.add(l)
	c.cfg.Logger.Debug("lease acquired", "lease", seq.name, "holder", c.cfg.Holder, "token", seq.token)
	return l, nil
}

// recoverGrant finds out whether an acquisition without an answer was granted.
// "Not there" may still become "there" while the old backend works on, so what
// isn't returned is given back until it can't be.
func (c *Client) recoverGrant(ctx context.Context, cl claim, seq Sequencer, sent time.Time, cause error) (*Lease, error) {
	err := c.onControl(ctx, func(conn *pgx.Conn) (err error) {
		seq.token, err = inShortTx(conn).LeaseByNonce(ctx, lockdb.LeaseByNonceParams{Name: seq.name, Nonce: seq.nonce})
		return err
	})
	if err == nil {
		return c.hold(cl, seq, sent)
	}
	c.abandon(ctx, seq, cl.ttl)
	return nil, fmt.Errorf("acquire %q: %w", cl.name, cause)
}
