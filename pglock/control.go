package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// control is the pool for what must not starve behind the application's own
// statements. It is made on first use.
type control struct {
	app     *pgxpool.Pool
	given   *pgxpool.Pool // from Config.Control; not closed here
	connect time.Duration // the longest that a connection may take to be made

	mu   sync.Mutex
	own  *pgxpool.Pool
	over bool
	// replaced counts the pools that are closing in the background.
	replaced sync.WaitGroup
}

func newControl(app *pgxpool.Pool, cfg Config) *control {
	return &control{
		app: app, given: cfg.Control,
		connect: min(maxRenewTry, max(cfg.RenewEvery/2, time.Second)),
	}
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
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), c.config())
	if err != nil {
		return nil, err
	}
	c.own = pool
	return pool, nil
}

// config is the application's, so that the hooks stay: IAM passwords, SET ROLE,
// TLS.
func (c *control) config() *pgxpool.Config {
	cfg := c.app.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 2, 0, 0
	// What is sent can be repeated, so the statement itself finds out whether the
	// connection is alive.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	// A connection that is never answered would hold its place in the pool for
	// two minutes.
	if t := cfg.ConnConfig.ConnectTimeout; t <= 0 || t > c.connect {
		cfg.ConnConfig.ConnectTimeout = c.connect
	}
	if hook := cfg.AfterConnect; hook != nil {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, c.connect)
			defer cancel()
			return hook(ctx, conn)
		}
	}
	return cfg
}

// replace drops a pool after one of its connections failed: the next try must
// not meet another that died of the same cause, nor wait for a dead one's place,
// which pgx keeps for 15 s while it says goodbye.
func (c *control) replace(failed *pgxpool.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == failed && !c.over {
		c.own = nil
		c.replaced.Go(failed.Close)
	}
}

func (c *control) isReplaced(pool *pgxpool.Pool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.given == nil && c.own != pool && !c.over
}

func (c *control) close() {
	c.mu.Lock()
	c.over = true
	own := c.own
	c.mu.Unlock()
	if own != nil {
		own.Close()
	}
	c.replaced.Wait()
}
