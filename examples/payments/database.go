package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/tempdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// openDatabase connects to the database of url, or starts a temporary one with Gatepost's
// schema in it and says so on w. The caller calls done.
func openDatabase(ctx context.Context, url string, w io.Writer) (pool *pgxpool.Pool, done func(), err error) {
	if source := cli.SourceOf(url); source.URL != "" {
		pool, err := source.Connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return pool, pool.Close, nil
	}
	fmt.Fprintln(w, "No --database-url: starting a temporary PostgreSQL, gone at the end.")
	db, err := tempdb.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return db.Pool, db.Close, nil
}

// tables are the service's, named in SQL with their schema: a search_path would have to be
// a session's, and poolers refuse that.
type tables struct{ schema, orders, charges string }

func tablesIn(schema string) tables {
	in := func(table string) string { return pgx.Identifier{schema, table}.Sanitize() }
	return tables{schema: schema, orders: in("orders"), charges: in("charges")}
}

// create makes them where they are missing, and the schema too, which takes a role that may
// do so. A database without Gatepost's schema is refused before anything is made.
func (t tables) create(ctx context.Context, pool *pgxpool.Pool) error {
	quoted := pgx.Identifier{t.schema}.Sanitize()
	var noGatepost, noSchema bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('gatepost.idempotency_keys') IS NULL, to_regnamespace($1) IS NULL`, quoted).Scan(&noGatepost, &noSchema)
	if err != nil {
		return err
	}
	if noGatepost {
		return idem.ErrNotMigrated
	}
	if noSchema {
		if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted); err != nil {
			return err
		}
	}
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+t.orders+` (
			id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			account text   NOT NULL,
			amount  bigint NOT NULL CHECK (amount > 0)
		);
		CREATE TABLE IF NOT EXISTS `+t.charges+` (
			id       text   PRIMARY KEY,
			order_id bigint NOT NULL REFERENCES `+t.orders+` (id),
			amount   bigint NOT NULL
		)`)
	return err
}

// drop removes what a demo made: the schema, and the keys of its account.
func (t tables) drop(ctx context.Context, pool *pgxpool.Pool, account string) error {
	// The demo's ctx is over when somebody pressed Ctrl-C.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, keys := pool.Exec(ctx, `DELETE FROM gatepost.idempotency_keys WHERE scope = $1`, account)
	_, schema := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{t.schema}.Sanitize()+" CASCADE")
	if err := errors.Join(keys, schema); err != nil {
		return fmt.Errorf("the schema %s may be left, drop it by hand: %w", t.schema, err)
	}
	return nil
}
