package pglock

import (
	"context"
	"sync"

	"github.com/gatepost/gatepost/gen/lockdb"
)

// waiting is who waits in this client. Waiters of one name stand in a queue, and
// only its head talks to the database, so a thousand of them cost what one does.
// Between clients the database has one row a queue, gatepost.waiters, and whoever
// releases the name notifies the queue that has waited longest.
type waiting struct {
	client *Client
	id     string // this client's, in rows and notifications

	mu      sync.Mutex
	queues  map[string]*queue // by name
	byID    map[int64]*queue
	lastID  int64
	keeping bool // the goroutines run
	over    bool
	keepers sync.WaitGroup
}

// queue is the waiters of one name, first come, first served.
type queue struct {
	name    string
	id      int64
	tickets []*ticket
	wake    chan struct{} // the name may be free; for the head
}

// ticket is one waiter.
type ticket struct {
	queue *queue
	turn  chan struct{} // closed when it is the head
}

func newWaiting(c *Client) *waiting {
	return &waiting{client: c, id: newNonce()[:13], queues: map[string]*queue{}, byID: map[int64]*queue{}}
}

// join queues a waiter, who leaves again whatever comes.
func (w *waiting) join(name string) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[name]
	if q == nil {
		w.lastID++
		q = &queue{name: name, id: w.lastID, wake: make(chan struct{}, 1)}
		w.queues[name], w.byID[q.id] = q, q
	}
	t := &ticket{queue: q, turn: make(chan struct{})}
	q.tickets = append(q.tickets, t)
	if len(q.tickets) == 1 {
		close(t.turn)
	}
	w.start()
	return t
}

// leave takes a waiter out and lets the next one be the head. The last one takes
// the queue's row away and passes on a wake that came too late for it.
func (w *waiting) leave(ctx context.Context, t *ticket) {
	w.mu.Lock()
	q := t.queue
	for i, other := range q.tickets {
		if other == t {
			q.tickets = append(q.tickets[:i], q.tickets[i+1:]...)
			if i == 0 && len(q.tickets) > 0 {
				close(q.tickets[0].turn)
			}
			break
		}
	}
	last := len(q.tickets) == 0
	if last {
		delete(w.queues, q.name)
		delete(w.byID, q.id)
	}
	w.mu.Unlock()
	if last && w.registers() {
		w.client.forgetWaiter(ctx, q)
	}
}

// registers says whether this client has rows in gatepost.waiters: only one that
// listens does.
func (w *waiting) registers() bool { return !w.client.cfg.DisableNotify }

// signal wakes the head of a queue; several wakes become one.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// signalID wakes a queue by the number in a notification. One that is gone had
// its row when the notification was sent; the poll makes up for it.
func (w *waiting) signalID(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.byID[id]; q != nil {
		q.signal()
	}
}

func (w *waiting) signalAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		q.signal()
	}
}

func (w *waiting) signalName(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[name]; q != nil {
		q.signal()
	}
}

// snapshot is the names that are waited for, and their queues' numbers.
func (w *waiting) snapshot() (names []string, ids []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		names, ids = append(names, q.name), append(ids, q.id)
	}
	return names, ids
}

// rowTTL is how long a queue's row counts without being kept.
func (w *waiting) rowTTL() int64 { return 3*w.client.cfg.PollInterval.Microseconds() + 2_000_000 }

// keep registers queues and keeps them registered.
func (w *waiting) keep(ctx context.Context, names []string, ids []int64) error {
	return w.client.onControl(ctx, shortTx{}, func(q *lockdb.Queries) error {
		return q.WaiterKeep(ctx, lockdb.WaiterKeepParams{
			Client: w.id, Holder: w.client.cfg.Holder, TtlUs: w.rowTTL(), Waiters: ids, Names: names,
		})
	})
}

// forgetWaiter deletes a queue's row, and wakes another client's when this one
// was woken and nobody was there any more.
func (c *Client) forgetWaiter(ctx context.Context, q *queue) {
	kind := shortTx{}
	select {
	case <-q.wake:
		kind.wake = &lockdb.WaiterWakeParams{Name: q.name}
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout) // the waiter's may be over
	defer cancel()
	err := c.onControl(ctx, kind, func(db *lockdb.Queries) error {
		return db.WaiterForget(ctx, lockdb.WaiterForgetParams{Client: c.waiting.id, Waiter: &q.id})
	})
	if err != nil {
		c.cfg.Logger.DebugContext(ctx, "waiter not deleted, it lapses", "lease", q.name, "err", err)
	}
}
