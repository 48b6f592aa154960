package pglock

import (
	"context"
	"net"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// Spread is over how much time the waiters of a lapsed lease come back.
var (
	Spread   = spread
	NextLook = nextLook
)

// Watchdog is a watchdog whose timer can be made to fire late.
type Watchdog struct{ *watchdog }

// Watch starts a watchdog.
func Watch(socket net.Conn, until time.Time) Watchdog { return Watchdog{watch(socket, until)} }

// Extend gives it more time.
func (w Watchdog) Extend(d time.Duration) { w.extend(d) }

// Stop ends it.
func (w Watchdog) Stop() bool { return w.stop() }

// Fire is what the timer does.
func (w Watchdog) Fire() { w.cut() }

// WaitLock is the number of a name's advisory lock.
var WaitLock = waitLock

// ValidateName is what each name goes through first.
var ValidateName = validateName

// Granted is a lease that was asked for at a moment, without a heartbeat and without a
// database.
func Granted(c *Client, ttl time.Duration, sent time.Time) (*Lease, error) {
	t, err := c.cfg.timing(ttl)
	return newLease(c, claim{timing: t}, Sequencer{}, sent), err
}

// Extend counts a renewal that was sent at a moment.
func (l *Lease) Extend(sent time.Time) { l.extend(sent) }

// Lapse is what the timer does.
func (l *Lease) Lapse() { l.lapse() }

// Timing is what a lease's TTL comes to: how often it is renewed, and how long before
// its expiry it is not trusted any more.
func (l *Lease) Timing() (every, margin time.Duration) { return l.renewEvery, l.margin }

// Keep schedules a lease's renewals, without the goroutine that would send them.
func Keep(c *Client, l *Lease) {
	c.beat.started = true
	c.beat.add(l)
}

// Due is what the heartbeat would send now, and when it looks again.
func Due(c *Client, now time.Time) (batch []*Lease, next time.Time) { return c.beat.takeDue(now) }

// Tried is what the heartbeat does after a try that was sent at a moment, and was
// answered or wasn't.
func Tried(c *Client, batch []*Lease, sent time.Time, answered bool) {
	if !answered {
		c.beat.reschedule(batch, nil, sent)
		return
	}
	outcomes := make([]outcome, len(batch))
	for i, l := range batch {
		outcomes[i] = l.settle(lockdb.LeaseRenewRow{Renewed: true}, sent)
	}
	c.beat.reschedule(batch, outcomes, sent)
}

// Drop ends a lease that no database knows.
func Drop(l *Lease) { _ = l.lose(ErrReleased) }

// RenewAtOnce has a client renew at most so many leases in a statement. It is called
// before the first is acquired.
func RenewAtOnce(c *Client, n int) { c.beat.atOnce = n }

// ReplaceControl is what a failure of somebody else's statement on the control pool does.
func ReplaceControl(c *Client) {
	c.control.mu.Lock()
	own := c.control.own
	c.control.mu.Unlock()
	if own != nil {
		c.control.replace(own)
	}
}

// OnControl runs something over the control pool.
func OnControl(ctx context.Context, c *Client, fn func(*pgx.Conn) error) error {
	return c.onControl(ctx, fn)
}

// CommitOutcome reads an answer about a transaction that began so long ago, on timeline 1
// of system 1.
func CommitOutcome(row lockdb.TransactionStatusRow, ago time.Duration) (known, committed bool) {
	return origin{began: time.Now().Add(-ago), server: &server{system: "1", timeline: "1"}}.outcome(row)
}
