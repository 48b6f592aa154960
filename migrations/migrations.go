// Package migrations brings Gatepost's tables into an application's own
// database.
//
// Everything lives in the schema gatepost, the version table included
// (gatepost.schema_migrations), so an application that runs goose migrations of
// its own in the same database is not touched. Migrate over a direct
// connection: the lock that makes simultaneous starts safe is a session lock,
// which a pooler in transaction mode would lose.
package migrations

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// FS holds the migration files, for tools that apply them by themselves. They
// expect that the schema gatepost exists; see SQL.
//
//go:embed *.sql
var FS embed.FS

const (
	versionTable = "gatepost.schema_migrations"

	// lockID serialises migrations of Gatepost: "gatepost" in ASCII. It is the
	// project's own, so that it doesn't wait for the application's migrations.
	lockID int64 = 0x67617465706f7374
)

// ErrOtherTool says that Gatepost's tables are there, and that no migration of them is
// recorded: another tool made them, from what SQL returns, and keeps them up to date.
var ErrOtherTool = errors.New("migrations: another tool made Gatepost's tables, from the SQL of gatepost migrate sql: keep them up to date with it, by the parts that are new")

// Up applies the migrations that are missing, each in a transaction of its own,
// and creates the schema first when there is none. Processes that call it at
// the same moment wait for each other and all succeed; on a database that is up
// to date it changes nothing. After an error the migrations before the failing
// one stay applied; call it again when the cause is gone. It is ErrOtherTool, and changes
// nothing, where another tool made the tables.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	if err := createSchema(ctx, pool); errors.Is(err, ErrOtherTool) {
		return err
	} else if err != nil {
		return fmt.Errorf("create schema gatepost: %w", err)
	}
	return withProvider(pool, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Down undoes all that Up did, object by object and newest first. All leases
// and keys are lost with their tables. The schema and its version table stay.
// On a database that was never migrated it changes nothing.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	var present bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('`+versionTable+`') IS NOT NULL`).Scan(&present)
	if err != nil || !present {
		return err
	}
	if err := emptyLeases(ctx, pool); err != nil {
		return fmt.Errorf("empty gatepost.leases: %w", err)
	}
	return withProvider(pool, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, 0)
		return err
	})
}

// emptyLeases removes rows that an older version's constraints may refuse on the way down.
func emptyLeases(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DO $$ BEGIN
		IF to_regclass('gatepost.leases') IS NOT NULL THEN
			TRUNCATE gatepost.leases;
		END IF;
	END $$`)
	return err
}

// Latest is the version that Up brings a database to.
func Latest() int64 {
	all := sources()
	return all[len(all)-1].Version
}

// createSchema makes the schema, unless another tool has made tables in it. It
// takes a transaction lock first: two concurrent CREATE SCHEMA IF NOT EXISTS can
// both find nothing, and one then fails with 23505. It asks for the schema before
// it creates it, so that a role without CREATE on the database can run later
// migrations.
func createSchema(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lockID); err != nil {
		return err
	}
	if other, err := otherTool(ctx, tx); err != nil || other {
		return cmp.Or(err, ErrOtherTool)
	}
	var missing bool
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace('gatepost') IS NULL`).Scan(&missing); err != nil {
		return err
	}
	if missing {
		if _, err := tx.Exec(ctx, `CREATE SCHEMA gatepost`); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// rower is a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// otherTool says whether Gatepost's tables are there with none of their migrations
// recorded. A migration and its record are one commit, so it asks for the table first.
func otherTool(ctx context.Context, db rower) (is bool, err error) {
	var versions bool
	err = db.QueryRow(ctx, `SELECT to_regclass('gatepost.leases') IS NOT NULL, to_regclass('`+versionTable+`') IS NOT NULL`).Scan(&is, &versions)
	if err != nil || !is || !versions {
		return is, err
	}
	err = db.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM `+versionTable+` WHERE version_id > 0 AND is_applied)`).Scan(&is)
	return is, err
}

// withProvider makes a provider for one call: one whose first call failed stays
// broken.
func withProvider(pool *pgxpool.Pool, fn func(*goose.Provider) error) error {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockID),
		lock.WithLockTimeout(1, 300), // seconds between tries, tries
	)
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }() // closes the wrapper, not the caller's pool

	provider, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(locker),
	)
	if err != nil {
		return err
	}
	return fn(provider)
}
