package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// appSchema is where a Role has its own tables.
const appSchema = "app"

// Role is a pool on the database of url, the test's own, in a new role that has what the
// SQL of grants gives it, a schema app for its own tables in front of its search_path, and
// nothing that everybody has: PUBLIC loses its rights to the database and to the schema
// public. It is past a pooler, which refuses such settings. The role is dropped when the
// test ends.
func Role(tb testing.TB, url string, grants func(role string) (string, error)) *pgxpool.Pool {
	tb.Helper()
	owner := Connect(tb, Owner(tb, url))
	role := "gatepost_test_" + random()
	statements, err := equipment(role, owner.Config().ConnConfig.Database, appSchema, grants)
	if err != nil {
		tb.Fatal(err)
	}
	quoted := ident(role)
	for _, sql := range append([]string{"CREATE ROLE " + quoted, "CREATE SCHEMA IF NOT EXISTS " + appSchema}, statements...) {
		if _, err := owner.Exec(tb.Context(), sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		for _, sql := range []string{"DROP OWNED BY " + quoted + " CASCADE", "DROP ROLE " + quoted} {
			if _, err := owner.Exec(ctx, sql); err != nil {
				tb.Errorf("%s: %v", sql, err)
			}
		}
	})
	cfg := owner.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	cfg.ConnConfig.RuntimeParams["search_path"] = appSchema
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// equipment is the SQL that makes a role, which exists, an application's in a database,
// with a schema for its own tables.
func equipment(role, database, schema string, grants func(role string) (string, error)) ([]string, error) {
	text, err := grants(role)
	return []string{
		"REVOKE ALL ON DATABASE " + ident(database) + " FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
		"ALTER SCHEMA " + schema + " OWNER TO " + ident(role),
		text,
	}, err
}
