package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
)

// A Lease is one acquisition of a name. It is kept alive by its client's
// heartbeats until Release, Close or loss, and never comes back to life after
// that: acquire again. It is safe for concurrent use.
type Lease struct {
	client *Client
	seq    Sequencer
	owned  bool // by a call of Do, which releases it
	timing
	since time.Time // when it was asked for
	done  chan struct{}

	mu       sync.Mutex
	err      error     // why it is over; nil while held
	deadline time.Time // trusted until, by the local monotonic clock
	timer    *time.Timer
	onLoss   context.CancelCauseFunc
	// candidate is for whom the name is kept free after the release, if anybody.
	candidate string
}

func newLease(c *Client, cl claim, seq Sequencer, sent time.Time) *Lease {
	l := &Lease{client: c, seq: seq, owned: cl.owned, timing: cl.timing, since: sent, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = sent.Add(l.ttl - l.margin)
	l.timer = time.AfterFunc(time.Until(l.deadline), l.lapse)
	return l
}

// Name is the name that was acquired.
func (l *Lease) Name() string { return l.seq.name }

// Token is the fencing token: higher than that of each earlier acquisition of
// the name.
func (l *Lease) Token() int64 { return l.seq.token }

// Holder is the text that tells people who has the lease.
func (l *Lease) Holder() string { return l.client.cfg.Holder }

// Sequencer is what another process needs to do fenced writes under this lease.
func (l *Lease) Sequencer() Sequencer { return l.seq }

// Deadline is the moment until which the lease is trusted unless renewed:
// SafetyMargin before the database's expiry, counted from when the last
// successful request was sent. After the lease is over it stays.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done is closed when the lease is over: before it expires in the database,
// by a local timer, also while the database doesn't answer. A process that was
// stopped learns it only when it runs again: what must not happen then has to be
// fenced.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is nil while the lease is held, and then ErrExpired, ErrSuperseded or
// ErrReleased; each matches ErrLost.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Renew extends the lease by its TTL now, as the heartbeats do by themselves.
// It is refused, with the reason, when the lease is over or no longer the
// database's; any other error leaves the lease as it is, to be renewed by the
// next heartbeat. One round trip on the control connection, which takes half of
// RenewEvery at most, or a sixth of the TTL up to 250 ms where that is more; 5 s
// whatever they are.
func (l *Lease) Renew(ctx context.Context) error {
	for {
		if err := l.Err(); err != nil {
			return err
		}
		outcomes, err := l.client.beat.renew(ctx, []*Lease{l})
		switch {
		case conflicted(err):
		case err != nil:
			return fmt.Errorf("renew %q: %w", l.seq.name, err)
		case outcomes[0] == renewed:
			return l.Err()
		}
		// Over, which the next round tells, or its row was locked for a moment.
		if err := l.client.sleep(ctx, jitter(5*time.Millisecond)); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("renew %q: %w", l.seq.name, err)
		}
	}
}

// Release ends the lease and frees the name for the next holder. Do it after
// the work has stopped. Locally the lease is over at once, whatever is returned.
//
// A second Release is ErrReleased and does nothing; a lease that was lost before
// is freed in the database if it is still ours there, and the reason of the loss
// is returned. Any other error means that the name may stay taken until it
// expires; releasing goes on in the background. One round trip, and where somebody waits
// one that wakes a waiter, behind the return: Close waits for it.
//
// It doesn't wait for the disk, nor for a standby: the next grant of the name does, and
// makes the release durable with it. A server that crashes within 3 wal_writer_delay of the
// release, 600 ms by default, and before the next grant, may have forgotten it. Nobody holds
// the lease then, and it reads as held until it expires; a sequencer of it that is still
// about is good until then.
func (l *Lease) Release(ctx context.Context) (err error) {
	lost := l.lose(ErrReleased)
	l.mu.Lock()
	candidate := l.candidate
	l.mu.Unlock()
	if errors.Is(lost, ErrReleased) {
		return lost
	}
	defer l.cancelWork(ErrReleased) // not before: ctx may be the work's own
	ctx, end := l.client.trace.releaseStart(ctx, TraceReleaseStartData{Name: l.seq.name, Token: l.seq.token, Held: time.Since(l.since)})
	defer func() { end(err) }()
	err = l.client.releaseRow(ctx, l.client.onApp, l.seq, candidate)
	switch {
	case lost != nil:
		return lost
	case err == nil:
		l.client.cfg.Logger.DebugContext(ctx, "lease released", "lease", l.seq.name, "token", l.seq.token)
		return nil
	case errors.Is(err, ErrLost): // unknown until now
		l.tellLoss(ctx, err)
		return err
	default:
		l.client.cfg.Logger.WarnContext(ctx, "lease not released yet", "lease", l.seq.name, "token", l.seq.token, "err", err)
		l.client.abandon(ctx, l.seq, l.ttl)
		return fmt.Errorf("release %q: %w", l.seq.name, err)
	}
}

// reserve makes the release one for the benefit of a candidate.
func (l *Lease) reserve(candidate string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.candidate = candidate
}

// extend counts a renewal that was sent at that moment.
func (l *Lease) extend(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := sent.Add(l.ttl - l.margin)
	if l.err != nil || !deadline.After(l.deadline) {
		return
	}
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
}

// lapse is called by the timer, which may have been outrun by a renewal.
func (l *Lease) lapse() {
	l.mu.Lock()
	left := time.Until(l.deadline)
	if left > 0 && l.err == nil {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	_ = l.lose(ErrExpired)
}

// lose ends the lease locally and returns why it had been over before; nil when
// it was held until now.
func (l *Lease) lose(reason error) (before error) {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.err = reason
	l.timer.Stop()
	close(l.done)
	l.mu.Unlock()

	l.client.forget(l)
	if reason != ErrReleased { //nolint:errorlint // identity: it is our own
		l.cancelWork(reason)
		l.tellLoss(context.Background(), reason) //nolint:forbidigo // a timer's
	}
	return nil
}

func (l *Lease) tellLoss(ctx context.Context, reason error) {
	if t := l.client.trace.loss; t != nil {
		t.TraceLoss(ctx, TraceLossData{Name: l.seq.name, Token: l.seq.token, Held: time.Since(l.since), Reason: reason})
	}
	l.client.cfg.Logger.ErrorContext(ctx, "lease lost", "lease", l.seq.name, "token", l.seq.token, "err", reason)
}

// cancelOnLoss calls cancel with the reason when the lease is over, at once if
// it is.
func (l *Lease) cancelOnLoss(cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onLoss = cancel
	if l.err != nil {
		cancel(l.err)
	}
}

func (l *Lease) cancelWork(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onLoss != nil {
		l.onLoss(reason)
	}
}

// forget stops keeping a lease alive.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	delete(c.leases, l)
	c.mu.Unlock()
	c.beat.remove(l)
}

// outcome is what the database said of one renewal.
type outcome int

const (
	retry   outcome = iota // locked by somebody for a moment, or changed just now
	renewed                // extended
	over                   // no longer ours; the lease was told why
)

// settle applies the database's answer to a renewal sent at that moment.
func (l *Lease) settle(row lockdb.LeaseRenewRow, sent time.Time) outcome {
	switch {
	case row.Renewed:
		l.extend(sent)
		return renewed
	case !row.Mine:
		_ = l.lose(ErrSuperseded)
		return over
	case row.Lapsed:
		_ = l.lose(ErrExpired)
		return over
	default:
		return retry
	}
}
