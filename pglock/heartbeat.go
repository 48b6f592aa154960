package pglock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// maxRenewTry bounds one renewal whatever the TTL, so that a connection that
// went silent is replaced soon; maxRenewPause bounds the pause before the next.
const (
	maxRenewTry   = 5 * time.Second
	maxRenewPause = 2 * time.Second
)

// batchSpread is how much longer an interval may be than the shortest one that
// shares its statement: a try has the time that suits the shortest.
const batchSpread = 4

// renewAtOnce is how many leases one statement renews at most: it locks its rows until
// it commits, and a release of one of them waits for that; and with all of 100,000 in
// one, a server that is busy could do none of them in the time that a try has.
const renewAtOnce = 5000

// heartbeat renews all leases of a client: those that are due together in one
// statement, on the control connection. One goroutine waits for the next due
// time and starts tries; a try that hangs holds up only its own leases.
type heartbeat struct {
	client *Client
	atOnce int           // renewAtOnce
	wake   chan struct{} // the earliest due time may have changed
	stop   chan struct{}
	done   chan struct{}
	tries  sync.WaitGroup

	mu      sync.Mutex
	started bool
	leases  map[*Lease]*schedule
	// next is when the goroutine wakes up by itself.
	next time.Time
}

// schedule is when a lease is renewed next.
type schedule struct {
	due    time.Time
	trying bool
}

func newHeartbeat(c *Client) *heartbeat {
	return &heartbeat{
		client: c,
		atOnce: renewAtOnce,
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		leases: map[*Lease]*schedule{},
	}
}

// add schedules a lease that was granted just now.
func (h *heartbeat) add(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.Err() != nil { // lost before it got here
		return
	}
	s := &schedule{due: l.Deadline().Add(l.margin - l.ttl + l.renewEvery)}
	h.leases[l] = s
	if !h.started {
		h.started = true
		go h.run() // owned by close
	}
	if s.due.Before(h.next) { // waking a goroutine costs a tenth of an acquisition
		h.signal()
	}
}

func (h *heartbeat) remove(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leases, l)
}

// close stops the heartbeats and waits for the goroutines.
func (h *heartbeat) close() {
	close(h.stop)
	h.mu.Lock()
	started := h.started
	h.started = true // none is started from here on
	h.mu.Unlock()
	if started {
		<-h.done
	}
}

func (h *heartbeat) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *heartbeat) run() {
	defer close(h.done)
	defer h.tries.Wait()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the client's own goroutine has no caller
	defer cancel()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-h.wake:
		case <-timer.C:
		}
		batch, next := h.takeDue(time.Now())
		if len(batch) > 0 {
			h.tries.Go(func() { h.tryAll(ctx, batch) })
		}
		timer.Reset(time.Until(next))
	}
}

// takeDue picks the leases to renew now, and says when to look again. When one is
// due, those that would be due within half their own interval go with it, so
// that leases acquired at different moments end up in one statement. None with a
// shorter interval does: the others' try would have its time.
func (h *heartbeat) takeDue(now time.Time) (batch []*Lease, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var shortest time.Duration // of the intervals that are due
	for l, s := range h.leases {
		if !s.trying && !s.due.After(now) && (shortest == 0 || l.renewEvery < shortest) {
			shortest = l.renewEvery
		}
	}
	h.next = now.Add(time.Hour)
	for l, s := range h.leases {
		switch {
		case s.trying:
		case l.renewEvery >= shortest && l.renewEvery <= batchSpread*shortest && !s.due.After(now.Add(l.renewEvery/2)):
			s.trying = true
			batch = append(batch, l)
		case s.due.Before(h.next): // in the past, when it is due but has more time than this batch
			h.next = s.due
		}
	}
	return batch, h.next
}

// tryAll renews a batch in as many statements as it takes, one after another: those
// first that were not renewed for the longest. What one of them comes to is nothing to
// the others.
func (h *heartbeat) tryAll(ctx context.Context, batch []*Lease) {
	if len(batch) > h.atOnce {
		slices.SortFunc(batch, func(a, b *Lease) int { return a.Deadline().Compare(b.Deadline()) })
	}
	for part := range slices.Chunk(batch, h.atOnce) {
		if ctx.Err() != nil {
			return
		}
		h.try(ctx, part)
	}
}

// try renews a batch once and schedules the next renewal of each lease.
func (h *heartbeat) try(ctx context.Context, batch []*Lease) {
	sent := time.Now()
	outcomes, err := h.renew(ctx, batch)
	if err != nil {
		h.client.cfg.Logger.WarnContext(ctx, "renewal is retried", "leases", len(batch), "err", err)
	}
	h.reschedule(batch, outcomes, sent)
}

func (h *heartbeat) reschedule(batch []*Lease, outcomes []outcome, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, l := range batch {
		s, ok := h.leases[l]
		if !ok {
			continue
		}
		s.trying = false
		if outcomes != nil && outcomes[i] == renewed {
			s.due = sent.Add(l.renewEvery)
		} else {
			s.due = time.Now().Add(jitter(min(l.renewEvery/8, maxRenewPause)))
		}
	}
	h.signal()
}

// renew sends one renewal for all leases given and tells each what became of
// it. On an error nothing is known, and it can be repeated: a renewal compares
// nothing that it changes. It takes tryTimeout at most.
func (h *heartbeat) renew(ctx context.Context, batch []*Lease) (outcomes []outcome, err error) {
	ctx, end := h.client.trace.renewStart(ctx, len(batch))
	defer func() { end(outcomes, err) }()
	bound := maxRenewTry
	var p lockdb.LeaseRenewParams
	for _, l := range batch {
		bound = min(bound, l.tryTimeout())
		p.Names = append(p.Names, l.seq.name)
		p.Slots = append(p.Slots, l.seq.slot)
		p.Tokens = append(p.Tokens, l.seq.token)
		p.Nonces = append(p.Nonces, l.seq.nonce)
		p.TtlsUs = append(p.TtlsUs, l.ttl.Microseconds())
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	outcomes = make([]outcome, len(batch))
	err = h.client.onControl(ctx, func(conn *pgx.Conn) error {
		sent := time.Now()
		rows, err := inShortTx(conn).LeaseRenew(ctx, p)
		if err != nil {
			return err
		}
		for _, row := range rows {
			i := int(row.Ord) - 1
			outcomes[i] = batch[i].settle(row, sent)
		}
		return nil
	})
	if err != nil {
		return nil, translate(err)
	}
	return outcomes, nil
}
