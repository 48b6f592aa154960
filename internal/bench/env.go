package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is how many connections a row's own pool may have: 16 clients and some.
const poolSize = 20

// cleanupTimeout bounds what is done after the caller's context may be over.
const cleanupTimeout = 30 * time.Second

// env is where rows are measured: a database, and what is made there for it.
type env struct {
	Options
	config  *pgxpool.Config
	admin   *pgxpool.Pool // for what isn't measured
	version int           // the server's major one
	id      string        // makes the scratch's names its own
	row     string        // that is measured now
}

// open connects and makes the scratch schema.
func open(ctx context.Context, cfg *pgxpool.Config, opts Options) (*env, error) {
	e := &env{Options: opts, config: cfg.Copy(), id: strings.ToLower(rand.Text()[:10])}
	e.config.MaxConns = poolSize
	var err error
	if e.admin, err = pgxpool.NewWithConfig(ctx, e.config.Copy()); err != nil {
		return nil, err
	}
	if err := e.prepare(ctx); err != nil {
		e.admin.Close()
		return nil, err
	}
	return e, nil
}

func (e *env) prepare(ctx context.Context) error {
	var migrated bool
	err := e.admin.QueryRow(ctx, `SELECT to_regclass('gatepost.leases') IS NOT NULL AND to_regclass('gatepost.idempotency_keys') IS NOT NULL,
		current_setting('server_version_num')::int / 10000`).Scan(&migrated, &e.version)
	if err == nil && !migrated {
		err = pglock.ErrNotMigrated
	}
	if err == nil {
		_, err = e.admin.Exec(ctx, "CREATE SCHEMA "+e.schema())
	}
	return err
}

func (e *env) schema() string { return "gatepost_bench_" + e.id }

// lease is a name for leases that nobody else uses.
func (e *env) lease(name string) string { return e.leases() + name }

func (e *env) leases() string { return "gatepost-bench/" + e.id + "/" }

// operation is one for idempotency keys that nobody else uses.
func (e *env) operation() string { return "gatepost-bench/" + e.id }

// table makes a table in the scratch schema, and gives its name as SQL has it.
func (e *env) table(ctx context.Context, name, columns string) (pgx.Identifier, error) {
	table := pgx.Identifier{e.schema(), name}
	_, err := e.admin.Exec(ctx, "CREATE TABLE "+table.Sanitize()+" ("+columns+")")
	return table, err
}

// close removes the scratch, also after ctx has ended.
func (e *env) close(ctx context.Context) error {
	defer e.admin.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_, err := e.admin.Exec(ctx, "DROP SCHEMA "+e.schema()+" CASCADE")
	return errors.Join(
		removed("the schema "+e.schema(), err),
		removed("the leases under "+e.leases(), e.remove(ctx, "DELETE FROM gatepost.leases WHERE starts_with(name, $1)", e.leases())),
		removed("the keys of "+e.operation(), e.remove(ctx, "DELETE FROM gatepost.idempotency_keys WHERE operation = $1", e.operation())),
	)
}

// remove deletes rows where the role may: else they stay, free, until they are
// collected.
func (e *env) remove(ctx context.Context, sql string, arg string) error {
	_, err := e.admin.Exec(ctx, sql, arg)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42501" { // insufficient_privilege
		return nil
	}
	return err
}

func removed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("remove what was made for the measurement, %s: %w", what, err)
}

// measure fills a row's result in.
func (e *env) measure(ctx context.Context, row Row) (Result, error) {
	e.row = row.Name
	e.Progress(row.Name, 0, e.Pairs)
	result := Result{Row: row.Name, What: row.What, Against: row.Against, Bar: row.Bar, Known: row.Known}
	err := row.measure(ctx, e, &result)
	return result, err
}

// with runs fn on a pool of its own, so that rows don't share connections, and on a
// client whose leases are given back.
func (e *env) with(ctx context.Context, cfg *pgxpool.Config, client pglock.Config, fn func(*pgxpool.Pool, *pglock.Client) error) error {
	pool, err := pgxpool.NewWithConfig(ctx, cfg.Copy())
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := pglock.New(pool, client)
	if err != nil {
		return err
	}
	defer closeClient(ctx, c)
	return fn(pool, c)
}

// closeClient releases what a client holds. What can't be released lapses.
func closeClient(ctx context.Context, c *pglock.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = c.Close(ctx)
}
