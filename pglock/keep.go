package pglock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// start runs the goroutines with the first waiter. They end with the client, and
// cost a statement or two a PollInterval while somebody waits and none while
// nobody does. mu is held.
func (w *waiting) start() {
	if w.started || w.over {
		return
	}
	w.started = true
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the client's own goroutines have no caller
	w.keepers.Go(func() {
		defer cancel()
		<-w.client.closing
	})
	w.keepers.Go(func() { w.keep(ctx) })
	if w.registers() {
		w.keepers.Go(func() { w.listen(ctx) })
	}
}

// keep writes the rows of all queues, as the only one who does, so that a row
// that was deleted isn't written again; and polls for all of them.
func (w *waiting) keep(ctx context.Context) {
	timer := time.NewTimer(jitter(w.client.cfg.PollInterval))
	defer timer.Stop()
	for {
		poll := false
		select {
		case <-w.nudge:
		case <-timer.C:
			poll = true
			timer.Reset(jitter(w.client.cfg.PollInterval))
		case <-w.client.closing:
			return
		}
		try, cancel := context.WithTimeout(ctx, cleanupTimeout)
		w.work(try, poll)
		cancel()
	}
}

// work is one round: what is gone is deleted, what is new, or when it polls all,
// is kept, and those whose name reads as free are woken.
func (w *waiting) work(ctx context.Context, poll bool) {
	fresh, gone, kept := w.todo(poll)
	var failed error
	if w.registers() {
		w.forget(ctx, gone)
		if failed = w.register(ctx, kept); failed == nil {
			w.catchUp(ctx, fresh)
		}
		w.sweep(ctx)
	}
	w.mu.Lock()
	for _, q := range fresh {
		q.failed = failed
		close(q.registered)
	}
	w.mu.Unlock()
	if !poll || len(kept) == 0 {
		return
	}
	if err := w.look(ctx, kept); err != nil && !w.client.isClosing() {
		w.client.cfg.Logger.WarnContext(ctx, "poll for waiters is retried", "waiters", len(kept), "err", err)
		w.signalAll() // each finds out for itself
	}
}

// todo is what a round is about. What has gone before it was registered isn't: its
// row would stay.
func (w *waiting) todo(poll bool) (fresh, gone, kept []*queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh, gone = w.fresh, w.gone
	w.fresh, w.gone = nil, nil
	if poll { // by now, what was sent to them has come
		for _, q := range w.past {
			delete(w.byID, q.id)
		}
		w.past = nil
	}
	w.past = append(w.past, gone...)
	if poll {
		return fresh, gone, slices.Collect(maps.Values(w.queues))
	}
	for _, q := range fresh {
		if len(q.tickets) > 0 {
			kept = append(kept, q)
		}
	}
	return fresh, gone, kept
}

// register writes rows, or keeps them alive for three polls more.
func (w *waiting) register(ctx context.Context, queues []*queue) error {
	if len(queues) == 0 {
		return nil
	}
	p := lockdb.WaiterKeepParams{
		Client: w.id, Holder: w.client.cfg.Holder,
		TtlUs: (3*w.client.cfg.PollInterval + cleanupTimeout).Microseconds(),
	}
	for _, q := range queues {
		p.Names, p.Waiters = append(p.Names, q.name), append(p.Waiters, q.id)
	}
	return w.client.onControl(ctx, func(conn *pgx.Conn) error {
		return translate(inShortTx(conn).WaiterKeep(ctx, p))
	})
}

// atOnce is how many advisory locks a transaction takes, at most: the server's lock table
// has room for some thousands, of everybody's.
const atOnce = 100

// catchUp waits, before queues that were registered just now look again, for releases
// that may not have seen them. One that takes longer than a PollInterval is seen by the
// poll; and longer than cleanupTimeout the round doesn't take.
func (w *waiting) catchUp(ctx context.Context, fresh []*queue) {
	for some := range slices.Chunk(fresh, atOnce) {
		p := lockdb.WaiterCatchUpParams{WaitMs: max(1, min(w.client.cfg.PollInterval, cleanupTimeout).Milliseconds())}
		for _, q := range some {
			p.Locks = append(p.Locks, waitLock(q.name))
		}
		err := w.client.onControl(ctx, func(conn *pgx.Conn) error { return inShortTx(conn).WaiterCatchUp(ctx, p) })
		if err != nil {
			w.client.cfg.Logger.DebugContext(ctx, "releases under way not waited for", "waiters", len(some), "err", err)
			return
		}
	}
}

// look wakes the queues whose name reads as free: that is how they learn of it
// when a notification was lost, or can't come.
func (w *waiting) look(ctx context.Context, queues []*queue) error {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.name
	}
	rows, err := w.states(ctx, names)
	w.learn(rows)
	return err
}

func (w *waiting) states(ctx context.Context, names []string) (rows []lockdb.WaiterLookRow, err error) {
	err = w.client.onControl(ctx, func(conn *pgx.Conn) error {
		rows, err = inShortTx(conn).WaiterLook(ctx, lockdb.WaiterLookParams{Names: names, Holder: w.client.cfg.Holder})
		return err
	})
	return rows, err
}

// sweepEvery is how often a client that waits takes dead rows away, which read as
// dead without that.
const sweepEvery = time.Minute

func (w *waiting) sweep(ctx context.Context) {
	if time.Since(w.swept) < sweepEvery {
		return
	}
	w.swept = time.Now()
	err := w.client.onControl(ctx, func(conn *pgx.Conn) error {
		_, err := inShortTx(conn).WaiterSweep(ctx)
		return err
	})
	if err != nil {
		w.client.cfg.Logger.DebugContext(ctx, "dead waiters not deleted, they are tried again", "err", err)
	}
}

// forget deletes the rows of queues that nobody stands in any more, and passes on
// a wake that came too late for them. A row that stays lapses.
func (w *waiting) forget(ctx context.Context, gone []*queue) {
	if len(gone) == 0 {
		return
	}
	p := lockdb.WaiterForgetParams{Client: w.id}
	for _, q := range gone {
		p.Waiters = append(p.Waiters, q.id)
	}
	if !w.delete(ctx, p) {
		return // a wake could come back to the same rows
	}
	for _, q := range gone {
		select {
		case <-q.wake:
			w.client.wake(ctx, w.client.onControl, lockdb.WaiterWakeParams{Name: q.name})
		default:
		}
	}
}

// forgetAll deletes all rows of this client, and passes on what it may have been
// woken for meanwhile.
func (w *waiting) forgetAll(ctx context.Context) {
	if !w.delete(ctx, lockdb.WaiterForgetParams{Client: w.id, AllOfIt: true}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	rows, _ := w.states(ctx, w.recent()) // the others poll
	for _, row := range rows {
		if row.Free {
			w.client.wake(ctx, w.client.onControl, lockdb.WaiterWakeParams{Name: row.Name})
		}
	}
}

func (w *waiting) delete(ctx context.Context, p lockdb.WaiterForgetParams) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := w.client.onControl(ctx, func(conn *pgx.Conn) error { return inShortTx(conn).WaiterForget(ctx, p) })
	if err != nil {
		w.client.cfg.Logger.DebugContext(ctx, "waiters not deleted, they lapse", "err", err)
	}
	return err == nil
}
