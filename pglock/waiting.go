package pglock

import (
	"context"
	"slices"
	"sync"
)

// waiting is who waits in this client. Waiters of one name stand in a queue, and
// only its head talks to the database, so a thousand of them cost what one does.
// Between clients the database has one row a queue, gatepost.waiters, and whoever
// releases the name notifies the queue that has waited longest.
type waiting struct {
	client *Client
	id     string // this client's, in rows and notifications
	nudge  chan struct{}

	mu      sync.Mutex
	queues  map[string]*queue // by name
	byID    map[int64]*queue  // those that were forgotten just now, too
	lastID  int64
	fresh   []*queue // not registered yet
	gone    []*queue // nobody waits any more, or a wake came after that
	past    []*queue // forgotten since the last poll
	started bool
	keepers sync.WaitGroup // only added to before over
	over    bool
}

// queue is the waiters of one name, first come, first served.
type queue struct {
	name       string
	id         int64
	wake       chan struct{} // the name may be free; for the head
	registered chan struct{} // closed when the row is there, or can't be

	// Guarded by waiting.mu.
	tickets []*ticket
	failed  error // why it could not be registered
	probe   bool  // a head left without the lease: a wake may have been lost on it
}

// ticket is one waiter.
type ticket struct {
	queue *queue
	turn  chan struct{} // closed when it is the head
}

func newWaiting(c *Client) *waiting {
	return &waiting{
		client: c, id: newNonce()[:13], nudge: make(chan struct{}, 1),
		queues: map[string]*queue{}, byID: map[int64]*queue{},
	}
}

// join queues a waiter, who leaves again whatever comes.
func (w *waiting) join(name string) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[name]
	if q == nil {
		w.lastID++
		q = &queue{
			name: name, id: w.lastID, probe: true,
			wake: make(chan struct{}, 1), registered: make(chan struct{}),
		}
		w.queues[name], w.byID[q.id] = q, q
		w.fresh = append(w.fresh, q)
	}
	t := &ticket{queue: q, turn: make(chan struct{})}
	q.tickets = append(q.tickets, t)
	if len(q.tickets) == 1 {
		close(t.turn)
	}
	w.start()
	signal(w.nudge)
	return t
}

// leave takes a waiter out, with the lease or without, and lets the next one be
// the head.
func (w *waiting) leave(t *ticket, granted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := t.queue
	i := slices.Index(q.tickets, t)
	q.tickets = slices.Delete(q.tickets, i, i+1)
	if i > 0 {
		return
	}
	q.probe = !granted
	if len(q.tickets) > 0 {
		close(q.tickets[0].turn)
		return
	}
	delete(w.queues, q.name)
	w.gone = append(w.gone, q)
	signal(w.nudge)
}

// mustProbe says, once, whether the head has to look before it sleeps, and tells
// the first one why its queue could not be registered.
func (w *waiting) mustProbe(q *queue) (probe bool, failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	probe, q.probe = q.probe, false
	failed, q.failed = q.failed, nil
	return probe, failed
}

// registers says whether this client has rows in gatepost.waiters: only one that
// listens does.
func (w *waiting) registers() bool { return !w.client.cfg.DisableNotify }

// signal wakes whoever reads the channel; several signals become one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// signalID wakes a queue by the number in a notification. One that is gone still
// had its row when that was sent, and is forgotten again, which passes it on.
func (w *waiting) signalID(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.byID[id]
	if q == nil {
		return
	}
	signal(q.wake)
	if len(q.tickets) == 0 {
		w.gone = append(w.gone, q)
		signal(w.nudge)
	}
}

// signalNames wakes the queues of some names.
func (w *waiting) signalNames(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if q := w.queues[name]; q != nil {
			signal(q.wake)
		}
	}
}

func (w *waiting) signalAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		signal(q.wake)
	}
}

// close waits for the goroutines, which end with the client.
func (w *waiting) close(ctx context.Context) {
	w.mu.Lock()
	w.over = true
	started := w.started
	w.mu.Unlock()
	w.keepers.Wait()
	if started && w.registers() {
		w.forgetAll(ctx)
	}
}
