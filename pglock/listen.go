package pglock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

const (
	channel       = "gatepost"
	listenBackoff = time.Second
)

// start runs the goroutines with the first waiter. They end with the client, and
// cost one statement a PollInterval while somebody waits and none while nobody
// does. mu is held.
func (w *waiting) start() {
	if w.keeping || w.over {
		return
	}
	w.keeping = true
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the client's own goroutines have no caller
	w.keepers.Go(func() {
		defer cancel()
		<-w.client.closing
	})
	w.keepers.Go(func() { w.poll(ctx) })
	if w.registers() {
		w.keepers.Go(func() { w.listen(ctx) })
	}
}

// close waits for the goroutines and deletes what rows are left.
func (w *waiting) close(ctx context.Context) {
	w.mu.Lock()
	w.over = true
	kept := w.keeping && w.registers()
	w.mu.Unlock()
	w.keepers.Wait()
	if !kept {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_ = w.client.onControl(ctx, shortTx{}, func(q *lockdb.Queries) error {
		return q.WaiterForget(ctx, lockdb.WaiterForgetParams{Client: w.id})
	})
}

// poll looks, for all waiters at once, which names could be had: it is how they
// learn of a free name when a notification was lost, or can't come.
func (w *waiting) poll(ctx context.Context) {
	for w.client.sleep(ctx, jitter(w.client.cfg.PollInterval)) == nil && ctx.Err() == nil {
		names, ids := w.snapshot()
		if len(names) == 0 {
			continue
		}
		try, cancel := context.WithTimeout(ctx, cleanupTimeout)
		err := w.look(try, names, ids)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.client.cfg.Logger.WarnContext(ctx, "poll for waiters is retried", "waiters", len(names), "err", err)
			w.signalAll() // each finds out for itself
		}
	}
}

func (w *waiting) look(ctx context.Context, names []string, ids []int64) error {
	if w.registers() {
		if err := w.keep(ctx, names, ids); err != nil {
			return err
		}
	}
	var free []string
	err := w.client.onControl(ctx, shortTx{}, func(q *lockdb.Queries) (err error) {
		free, err = q.WaiterFree(ctx, lockdb.WaiterFreeParams{Names: names, Holder: w.client.cfg.Holder})
		return err
	})
	for _, name := range free {
		w.signalName(name)
	}
	return err
}

// listen keeps one LISTEN connection, made with the settings of the control pool
// and in addition to it.
func (w *waiting) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		w.client.cfg.Logger.WarnContext(ctx, "listening is retried", "err", err)
		if w.client.sleep(ctx, jitter(listenBackoff)) != nil {
			return
		}
	}
}

func (w *waiting) listenOnce(ctx context.Context) error {
	conn, err := w.client.control.hijack(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	w.signalAll() // what was sent before is lost
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		w.notified(n.Payload)
	}
}

// notified reads "client:waiter"; what is for another client, or isn't ours at
// all, is ignored.
func (w *waiting) notified(payload string) {
	client, waiter, _ := strings.Cut(payload, ":")
	if id, err := strconv.ParseInt(waiter, 10, 64); err == nil && client == w.id {
		w.signalID(id)
	}
}

// hijack is a connection of the control pool that is the caller's from here on.
func (c *control) hijack(ctx context.Context) (*pgx.Conn, error) {
	pool, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Hijack(), nil
}
