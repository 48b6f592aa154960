package idem

import (
	"context"
	"sync"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// control is one connection for renewals, made when it is first needed, and made
// anew when it has failed. It is used by one goroutine.
type control struct {
	store *Store
	pool  *pgxpool.Pool
	// failed counts the pools that are closing in the background.
	failed sync.WaitGroup
}

// run runs one statement. After an error that leaves the connection in doubt, the
// next run makes another: it must not wait until pgx has said goodbye to a dead one.
func (c *control) run(ctx context.Context, fn func(*idemdb.Queries) error) error {
	if c.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), c.config())
		if err != nil {
			return err
		}
		c.pool = pool
	}
	err := alone(ctx, c.pool, fn)
	if err != nil && sqlState(err) == "" {
		c.failed.Go(c.pool.Close)
		c.pool = nil
	}
	return err
}

// config is the application's, so that its hooks stay (IAM passwords, SET ROLE,
// TLS), bounded so that a connection that is never answered is given up.
func (c *control) config() *pgxpool.Config {
	cfg := c.store.pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 1, 0, 0
	// A renewal can be repeated, so it finds out by itself whether the connection lives.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	longest := min(maxRenewTry, max(c.store.beat.every()/2, time.Second))
	if t := cfg.ConnConfig.ConnectTimeout; t <= 0 || t > longest {
		cfg.ConnConfig.ConnectTimeout = longest
	}
	if hook := cfg.AfterConnect; hook != nil {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, longest)
			defer cancel()
			return hook(ctx, conn)
		}
	}
	return cfg
}

// close ends the connection, and waits for those that failed.
func (c *control) close() {
	if c.pool != nil {
		c.pool.Close()
	}
	c.failed.Wait()
}
