package pglock

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// control is the pool for what must not starve behind the application's own
// statements. It is made on first use.
type control struct {
	app   *pgxpool.Pool
	given *pgxpool.Pool // from Config.Control; not closed here

	mu   sync.Mutex
	own  *pgxpool.Pool
	over bool
}

func (c *control) get(ctx context.Context) (*pgxpool.Pool, error) {
	if c.given != nil {
		return c.given, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, ErrClosed
	}
	if c.own != nil {
		return c.own, nil
	}
	// From Config, so that the hooks stay: IAM passwords, SET ROLE, TLS.
	cfg := c.app.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 2, 0, 0
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	c.own = pool
	return pool, nil
}

// reset drops idle connections after one of them failed: the next try must not
// meet another that died of the same cause.
func (c *control) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own != nil {
		c.own.Reset()
	}
}

func (c *control) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.own != nil {
		c.own.Close()
	}
}
