package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// database is a connection to one that has Gatepost's schema.
type database struct {
	pool  *pgxpool.Pool
	close func()
}

// openDatabase connects to the database of url, or starts a temporary one and says so
// on w. Tables without a schema in their name are those of schema.
func openDatabase(ctx context.Context, url, schema string, w io.Writer) (*database, error) {
	if url == "" {
		url = os.Getenv("DATABASE_URL")
	}
	if url != "" {
		return connect(ctx, url, schema)
	}
	fmt.Fprintln(w, "No --database-url: starting a temporary PostgreSQL, gone at the end.")
	server, err := pgtemp.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	db, err := connect(ctx, server.URL(""), schema)
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	closePool := db.close
	db.close = func() { closePool(); _ = server.Stop() }
	if err := migrations.Up(ctx, db.pool); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

func connect(ctx context.Context, url, schema string) (*database, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return &database{pool: pool, close: pool.Close}, nil
}

// createTables makes the service's tables where they are missing. A database without
// Gatepost's schema is refused before anything is made.
func createTables(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var missing bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('gatepost.idempotency_keys') IS NULL`).Scan(&missing)
	if err != nil {
		return err
	}
	if missing {
		return idem.ErrNotMigrated
	}
	_, err = pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize()+`;
		CREATE TABLE IF NOT EXISTS orders (
			id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			account text   NOT NULL,
			amount  bigint NOT NULL CHECK (amount > 0)
		);
		CREATE TABLE IF NOT EXISTS charges (
			id       text   PRIMARY KEY,
			order_id bigint NOT NULL REFERENCES orders (id),
			amount   bigint NOT NULL
		)`)
	return err
}

// dropTables removes what a demo made: its schema, and the keys of its account.
func dropTables(ctx context.Context, pool *pgxpool.Pool, schema, account string) error {
	// The demo's ctx is over when somebody pressed Ctrl-C.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, keys := pool.Exec(ctx, `DELETE FROM gatepost.idempotency_keys WHERE scope = $1`, account)
	_, tables := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
	if err := errors.Join(keys, tables); err != nil {
		return fmt.Errorf("the schema %s may be left, drop it by hand: %w", schema, err)
	}
	return nil
}
