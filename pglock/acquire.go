package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
// or given back in the background. One round trip on a pooled connection; two
// when the row was locked for a moment, and three when the first INSERT of a name
// waited for another that was rolled back.
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
// have had it for a moment. If it still can't, a fence holds it.
func (c *Client) try(ctx context.Context, cl claim) (lease *Lease, err error) {
	ctx, end := c.trace.acquireStart(ctx, TraceAcquireStartData{Name: cl.name, Holder: c.cfg.Holder, TTL: cl.ttl})
	defer func() { end(lease, err) }()
	lease, err = c.tryOnce(ctx, cl)
	if held, ok := errors.AsType[*HeldError](err); ok && held.Fenced {
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
	nonce := newNonce() // before sending: it is how a lost answer is found again
	sent := time.Now()
	row, err := lockdb.New(shortTx{conn: conn.Conn()}).LeaseAcquire(ctx, lockdb.LeaseAcquireParams{
		Name: cl.name, Nonce: nonce, Holder: c.cfg.Holder, TtlUs: cl.ttl.Microseconds(), Data: cl.data,
	})
	switch {
	case err == nil:
		conn.Release()
		return c.granted(ctx, cl, nonce, sent, row)
	case sqlState(err) == stateLockNotAvailable: // another first INSERT of the name
		conn.Release()
		return nil, &HeldError{Name: cl.name, Fenced: true}
	case unstorable(err):
		conn.Release()
		return nil, fmt.Errorf("acquire %q: %w: the database can't store the name, the holder or Data: %w", cl.name, ErrInvalidConfig, err)
	case answered(err):
		conn.Release()
		return nil, fmt.Errorf("acquire %q: %w", cl.name, translate(err))
	case ctx.Err() != nil:
		conn.Release() // closed by pgx; the caller doesn't wait for that
		c.abandon(ctx, Sequencer{name: cl.name, nonce: nonce}, cl.ttl)
		return nil, fmt.Errorf("acquire %q: %w", cl.name, err)
	default:
		discard(ctx, conn)
		return c.recoverGrant(ctx, cl, nonce, sent, err)
	}
}

// granted turns the answer into a lease that is kept alive, or tells who has it.
func (c *Client) granted(ctx context.Context, cl claim, nonce string, sent time.Time, row lockdb.LeaseAcquireRow) (*Lease, error) {
	seq := Sequencer{name: cl.name, token: row.Token, nonce: nonce}
	if waited := time.Duration(row.WaitedUs) * time.Microsecond; row.Token != 0 && waited > cl.margin {
		return nil, c.handBack(ctx, cl, seq)
	}
	if row.Token != 0 {
		return c.hold(cl, seq, sent)
	}
	held := &HeldError{
		Name: cl.name, Holder: row.HeldBy, Token: row.HeldToken,
		Since: row.HeldSince.Time, ExpiresAt: row.HeldUntil.Time, Fenced: !row.Held,
	}
	if row.Held {
		held.RetryAfter = max(0, time.Duration(row.HeldForUs)*time.Microsecond)
	}
	return nil, held
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
func (c *Client) recoverGrant(ctx context.Context, cl claim, nonce string, sent time.Time, cause error) (*Lease, error) {
	var row lockdb.LeaseByNonceRow
	err := c.onControl(ctx, shortTx{}, func(q *lockdb.Queries) (err error) {
		row, err = q.LeaseByNonce(ctx, lockdb.LeaseByNonceParams{Name: cl.name, Nonce: nonce})
		return err
	})
	if err == nil {
		return c.hold(cl, Sequencer{name: cl.name, token: row.Token, nonce: nonce}, sent)
	}
	c.abandon(ctx, Sequencer{name: cl.name, nonce: nonce}, cl.ttl)
	return nil, fmt.Errorf("acquire %q: %w", cl.name, cause)
}

// handBack releases a first grant of a name whose INSERT waited for another
// one: the clock was read before the wait, so part of the TTL is gone. The next
// try finds the row and takes it by a clock that is read after its lock.
func (c *Client) handBack(ctx context.Context, cl claim, seq Sequencer) error {
	if err := c.releaseRow(ctx, c.onApp, seq, ""); err != nil && !errors.Is(err, ErrLost) {
		c.abandon(ctx, seq, cl.ttl)
	}
	return &HeldError{Name: cl.name, Fenced: true}
}

// abandon gives back, by its nonce, an acquisition that may be granted later or
// that could not be released: at once, after 1 s, after 5 s and after one TTL.
// It ends early when the row was released and when the client closes.
func (c *Client) abandon(ctx context.Context, seq Sequencer, ttl time.Duration) {
	ctx = context.WithoutCancel(ctx) // the caller's is over: that is why we are here
	c.inBackground(func() {
		for _, pause := range []time.Duration{0, time.Second, 4 * time.Second, max(0, ttl-5*time.Second)} {
			last := c.sleep(ctx, pause) != nil
			try, cancel := context.WithTimeout(ctx, cleanupTimeout)
			err := c.releaseRow(try, c.onControl, seq, "")
			cancel()
			if err == nil || errors.Is(err, ErrExpired) || last {
				return
			}
		}
	})
}

// releaseRow frees the row of one acquisition; the token is zero when it was
// never learnt. The error matches ErrSuperseded when the row isn't ours (any
// more) and ErrExpired when it was ours and had lapsed; it is free then, or
// reserved for the candidate if there is one.
func (c *Client) releaseRow(ctx context.Context, on runner, seq Sequencer, candidate string) error {
	params := lockdb.LeaseReleaseParams{Name: seq.name, Slot: seq.slot, Nonce: seq.nonce}
	wake := lockdb.WaiterWakeParams{Name: seq.name, Slot: seq.slot}
	if candidate != "" {
		us := reserveFor.Microseconds()
		params.ReservedFor, params.ReserveUs, wake.ReservedFor = &candidate, &us, &candidate
	}
	if seq.token != 0 {
		params.Token = &seq.token
	}
	return on(ctx, shortTx{wake: &wake}, func(q *lockdb.Queries) error {
		live, err := q.LeaseRelease(ctx, params)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrSuperseded
		case err == nil && !live:
			return ErrExpired
		default:
			return translate(err)
		}
	})
}

// discard closes a connection whose state is unknown and gives its place in the
// pool back, after the connection is really closed.
func discard(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	pgConn := conn.Conn().PgConn()
	_ = pgConn.Close(ctx)
	select {
	case <-pgConn.CleanupDone():
	case <-ctx.Done():
	}
	conn.Release()
}
