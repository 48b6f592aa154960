package idem

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
)

// maxRenewTry bounds one renewal whatever the lease, so that a connection that went
// silent is replaced soon; maxRenewPause bounds the pause before the next.
const (
	maxRenewTry   = 5 * time.Second
	maxRenewPause = 2 * time.Second
)

// renewAtOnce is how many attempts one statement renews at most: it locks their rows
// until it commits, and all of 100,000 a server that is busy could not renew in the time
// that a try has.
const renewAtOnce = 5000

// heartbeat renews all attempts of a store: those that are due together in one
// statement, or in one for each renewAtOnce, on a connection of the store's own, so that
// an application that uses up its pool doesn't lose its claims. While no attempt is held
// there is no goroutine, and before a third of a lease has passed no connection.
type heartbeat struct {
	store  *Store
	atOnce int // renewAtOnce

	mu       sync.Mutex
	attempts map[*Attempt]time.Time // when each is due
	running  *beating               // nil while there are none
	closed   bool
	closing  chan struct{} // closed with it
	// background counts goroutines; it is only added to while mu is held and closed
	// is false.
	background sync.WaitGroup
}

// beating is the goroutine of a time in which attempts are held.
type beating struct {
	wake   chan struct{} // the earliest due time may have changed
	cancel context.CancelFunc
	done   chan struct{}
}

func newHeartbeat(s *Store) *heartbeat {
	return &heartbeat{store: s, atOnce: renewAtOnce, attempts: map[*Attempt]time.Time{}, closing: make(chan struct{})}
}

// every is the time between two renewals.
func (h *heartbeat) every() time.Duration { return h.store.cfg.Lease / 3 }

// add schedules an attempt whose claim was sent at that moment. It is ErrClosed
// after close.
func (h *heartbeat) add(a *Attempt, sent time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if a.Err() != nil { // lost before it got here
		return nil
	}
	h.attempts[a] = sent.Add(h.every())
	if h.running == nil {
		ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the store's own goroutine has no caller
		b := &beating{wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
		h.running = b
		h.background.Go(func() { h.run(ctx, b) })
	}
	h.running.signal()
	return nil
}

// remove stops renewing an attempt. With the last one the goroutine is told to end:
// that one is returned.
func (h *heartbeat) remove(a *Attempt) *beating {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.attempts[a]; !ok {
		return nil
	}
	delete(h.attempts, a)
	if len(h.attempts) > 0 {
		return nil
	}
	b := h.running
	h.running = nil
	b.cancel()
	return b
}

// removeAndWait waits until the goroutine has ended too, 1 s at most: after that
// its connection doesn't answer, and is closed behind.
func (h *heartbeat) removeAndWait(ctx context.Context, a *Attempt) {
	b := h.remove(a)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	select {
	case <-b.done:
	case <-ctx.Done():
	}
}

// inBackground runs fn in a goroutine that Close waits for, unless it has closed.
func (h *heartbeat) inBackground(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.background.Go(fn)
	}
}

// close tells all attempts that they are lost, and refuses others. One that a call is
// deciding about learns it after that call.
func (h *heartbeat) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	attempts := slices.Collect(maps.Keys(h.attempts))
	h.mu.Unlock()
	for _, a := range attempts {
		a.lose(ErrClosed)
	}
}

// sleep waits, or says at once that the store is closing.
func (h *heartbeat) sleep(d time.Duration) (closing bool) {
	select {
	case <-time.After(d):
		return false
	case <-h.closing:
		return true
	}
}

func (h *heartbeat) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

func (b *beating) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (h *heartbeat) run(ctx context.Context, b *beating) {
	defer close(b.done)
	control := &control{store: h.store}
	defer control.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, next := h.takeDue(time.Now())
		if len(batch) > 0 {
			h.tryAll(ctx, control, batch)
			continue
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-timer.C:
		}
	}
}

// takeDue picks the attempts to renew now, or says how long to sleep. When one is
// due, those that would be due within half an interval go with it, so that attempts
// that began at different moments end up in one statement. What is due first comes first.
func (h *heartbeat) takeDue(now time.Time) (batch []*Attempt, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = time.Hour
	for _, due := range h.attempts {
		next = min(next, due.Sub(now))
	}
	if next > 0 {
		return nil, next
	}
	for a, due := range h.attempts {
		if !due.After(now.Add(h.every() / 2)) {
			batch = append(batch, a)
		}
	}
	slices.SortFunc(batch, func(a, b *Attempt) int { return h.attempts[a].Compare(h.attempts[b]) })
	return batch, 0
}

// tryAll renews a batch in as many statements as it takes, one after another. What one of
// them comes to is nothing to the others.
func (h *heartbeat) tryAll(ctx context.Context, control *control, batch []*Attempt) {
	for part := range slices.Chunk(batch, h.atOnce) {
		if ctx.Err() != nil {
			return
		}
		h.try(ctx, control, part)
	}
}

// try renews a batch once and schedules what is next for each.
func (h *heartbeat) try(ctx context.Context, control *control, batch []*Attempt) {
	sent := time.Now()
	row, err := h.renew(ctx, control, batch)
	again := time.Now().Add(jitter(min(h.every()/8, maxRenewPause)))
	if err != nil {
		if ctx.Err() == nil {
			h.store.cfg.Logger.WarnContext(ctx, "renewal is retried", "attempts", len(batch), "err", err)
		}
		h.schedule(batch, again)
		return
	}
	var renewed, skipped []*Attempt
	for i, a := range batch {
		switch ord := int32(i + 1); {
		case slices.Contains(row.Gone, ord):
			a.lose(ErrFenced)
			skipped = append(skipped, a) // unless it was lost
		case slices.Contains(row.Lapsed, ord):
			a.lose(ErrLapsed)
			skipped = append(skipped, a)
		case slices.Contains(row.Skipped, ord):
			skipped = append(skipped, a)
		default:
			a.extend(sent)
			renewed = append(renewed, a)
		}
	}
	h.schedule(renewed, sent.Add(h.every()))
	h.schedule(skipped, again)
}

// schedule says when the attempts that are still held are due.
func (h *heartbeat) schedule(attempts []*Attempt, due time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range attempts {
		if _, held := h.attempts[a]; held {
			h.attempts[a] = due
		}
	}
}

// renew sends one renewal for all attempts given. On an error nothing is known, and
// it can be repeated: a renewal compares nothing that it changes.
func (h *heartbeat) renew(ctx context.Context, control *control, batch []*Attempt) (row idemdb.AttemptRenewRow, err error) {
	p := idemdb.AttemptRenewParams{LeaseUs: h.store.cfg.Lease.Microseconds(), RetentionUs: h.store.cfg.Retention.Microseconds()}
	for _, a := range batch {
		p.Operations = append(p.Operations, a.call.key.Operation)
		p.Scopes = append(p.Scopes, string(a.call.key.Scope))
		p.Keys = append(p.Keys, a.call.key.Key)
		p.Attempts = append(p.Attempts, a.id)
	}
	ctx, cancel := context.WithTimeout(ctx, min(maxRenewTry, h.every()/2))
	defer cancel()
	err = control.run(ctx, func(q *idemdb.Queries) (err error) {
		row, err = q.AttemptRenew(ctx, p)
		return err
	})
	return row, err
}

// jitter spreads a pause over half of itself and one and a half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }
