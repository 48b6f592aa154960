package pglock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	channel       = "gatepost"
	listenBackoff = time.Second
)

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
