package pglock

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
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

	swept time.Time // when dead rows were deleted; the keeper's
}

// queue is the waiters of one name, first come, first served.
type queue struct {
	name       string
	id         int64
	wake       chan struct{} // the name may be free; for the head
	registered chan struct{} // closed when the row is there, or can't be

	// Guarded by waiting.mu.
	held    *HeldError    // as last seen
	retryAt time.Time     // when that lapses, or a lease of our own that was granted since
	fenced  bool          // nothing will announce when the name can be had
	pause   time.Duration // to the next look at it while it is fenced
	clients int64         // that wait for the name, as last seen
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
		swept: time.Now(),
	}
}

// joinBehind queues a waiter behind others of this client; nil when there are none.
func (w *waiting) joinBehind(name string) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[name]; q != nil {
		return w.queue(q)
	}
	return nil
}

// join queues a waiter that saw the lease held, who leaves again whatever comes.
func (w *waiting) join(held *HeldError) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[held.Name]
	if q == nil {
		w.lastID++
		q = &queue{
			name: held.Name, id: w.lastID, probe: true,
			wake: make(chan struct{}, 1), registered: make(chan struct{}),
		}
		w.queues[q.name], w.byID[q.id] = q, q
		w.fresh = append(w.fresh, q)
	}
	q.saw(held)
	return w.queue(q)
}

// queue makes a ticket. mu is held.
func (w *waiting) queue(q *queue) *ticket {
	t := &ticket{queue: q, turn: make(chan struct{})}
	q.tickets = append(q.tickets, t)
	if len(q.tickets) == 1 {
		close(t.turn)
	}
	w.start()
	signal(w.nudge)
	return t
}

// saw notes who has the lease. waiting.mu is held.
func (q *queue) saw(held *HeldError) {
	q.held, q.retryAt, q.fenced = held, time.Now().Add(held.RetryAfter), held.Fenced
	if !q.fenced {
		q.pause = 0
		return
	}
	q.pause = nextLook(q.pause)
}

// saw notes, at the head of a queue, who has the lease.
func (w *waiting) saw(q *queue, held *HeldError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.saw(held)
}

// heldBy is who had the lease when this client last looked.
func (w *waiting) heldBy(q *queue) *HeldError {
	w.mu.Lock()
	defer w.mu.Unlock()
	return q.held
}

// leave takes a waiter out, with the lease or without, and lets the next one be
// the head.
func (w *waiting) leave(t *ticket, lease *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := t.queue
	i := slices.Index(q.tickets, t)
	q.tickets = slices.Delete(q.tickets, i, i+1)
	if i > 0 {
		return
	}
	q.probe = lease == nil
	if lease != nil {
		q.retryAt, q.fenced, q.pause = time.Now().Add(lease.ttl), false, 0
	}
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

// learn takes what a poll found, and wakes the queues whose name reads as free.
func (w *waiting) learn(rows []lockdb.WaiterLookRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range rows {
		q := w.queues[row.Name]
		if q == nil {
			continue
		}
		q.clients = row.Clients
		if row.Free {
			signal(q.wake)
		}
	}
}

// untilNextTry is the known expiry, with the clients that wait for it spread out so
// that they don't come back together: the more of them, the wider.
func (w *waiting) untilNextTry(q *queue) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.fenced {
		return jitter(q.pause)
	}
	return time.Until(q.retryAt) + rand.N(spread(q.clients, w.client.cfg.PollInterval))
}

// nextLook is the pause behind one that found the lease fenced; 0 is none.
func nextLook(pause time.Duration) time.Duration {
	return min(max(2*pause, fencedFirst), fencedPoll)
}

// spread is 4 ms for each client that waits, and a PollInterval at most.
func spread(clients int64, poll time.Duration) time.Duration {
	return max(spreadEach, min(spreadEach*time.Duration(clients), poll))
}

// recent names the queues that a wake may still be sent to.
func (w *waiting) recent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[string]bool{}
	for _, q := range w.byID { // those that were forgotten just now, too
		names[q.name] = true
	}
	return slices.Collect(maps.Keys(names))
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
