package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// handBack releases a grant that came late: see grantFirst.
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
// reserved for the candidate if there is one. Whoever waits is woken after the
// COMMIT, also when it finds nothing to release: that is what a release finds
// whose first answer was lost.
func (c *Client) releaseRow(ctx context.Context, on runner, seq Sequencer, candidate string) error {
	waited := true // as far as is known
	err := on(ctx, func(conn *pgx.Conn) error {
		live, seen, err := c.free(ctx, conn, seq, candidate)
		if err == nil {
			waited = seen
		}
		if errors.Is(err, pgx.ErrNoRows) {
			live, err = freeOrReserve(ctx, conn, seq, candidate)
		}
		if conflicted(err) {
			live, err = freeOrReserve(ctx, conn, seq, candidate)
		}
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrSuperseded
		case err == nil && !live:
			return ErrExpired
		default:
			return translate(err)
		}
	})
	if waited && (err == nil || errors.Is(err, ErrLost)) {
		wake := lockdb.WaiterWakeParams{Name: seq.name, Slot: seq.slot}
		if candidate != "" {
			wake.ReservedFor = &candidate
		}
		c.wakeBehind(ctx, on, wake)
	}
	return err
}

// free is freeOrReserve without BEGIN and COMMIT, for what is usual, and says whether
// somebody may wait for the name; pgx.ErrNoRows when it is something else.
func (c *Client) free(ctx context.Context, conn *pgx.Conn, seq Sequencer, candidate string) (live, waited bool, err error) {
	if candidate != "" || seq.token == 0 || c.explicit.Load() {
		return false, false, pgx.ErrNoRows
	}
	held := &heldOff{conn: conn, lock: waitLock(seq.name)}
	row, err := lockdb.New(held).LeaseFree(ctx, lockdb.LeaseFreeParams{
		Name: seq.name, Slot: seq.slot, Token: seq.token, Nonce: seq.nonce,
	})
	switch sqlState(err) {
	case stateReadOnly, stateSerialization: // the session's defaults; nothing was changed
		return false, false, pgx.ErrNoRows
	default:
		return row.Live, row.Waited || !held.had, err
	}
}

// freeOrReserve frees a row, for the candidate where there is one; pgx.ErrNoRows
// when it isn't ours.
func freeOrReserve(ctx context.Context, conn *pgx.Conn, seq Sequencer, candidate string) (live bool, err error) {
	params := lockdb.LeaseReleaseParams{Name: seq.name, Slot: seq.slot, Nonce: seq.nonce}
	if candidate != "" {
		us := reserveFor.Microseconds()
		params.ReservedFor, params.ReserveUs = &candidate, &us
	}
	if seq.token != 0 {
		params.Token = &seq.token
	}
	return inShortTx(conn).LeaseRelease(ctx, params)
}

// wakeBehind wakes whoever waits without keeping the releaser waiting for that.
func (c *Client) wakeBehind(ctx context.Context, on runner, p lockdb.WaiterWakeParams) {
	ctx = context.WithoutCancel(ctx) // the name is free, and its waiters don't depend on the releaser's ctx
	wake := func() {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		c.wake(ctx, on, p)
	}
	if !c.inBackground(wake) {
		wake()
	}
}

// wake notifies whoever has waited longest. One that fails costs a PollInterval.
func (c *Client) wake(ctx context.Context, on runner, p lockdb.WaiterWakeParams) {
	err := on(ctx, func(conn *pgx.Conn) error {
		err := c.short(conn).WaiterWake(ctx, p)
		switch sqlState(err) {
		case stateReadOnly, stateSerialization: // a Control pool of other defaults
			err = inShortTx(conn).WaiterWake(ctx, p)
		}
		return err
	})
	if err != nil {
		c.cfg.Logger.DebugContext(ctx, "waiters not woken, they poll", "lease", p.Name, "err", err)
	}
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
