package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Role is a pool on the database of url, the test's own, in a new role that has what the
// SQL of grants gives it, a schema app for its own tables in front of its search_path, and
// nothing that everybody has: PUBLIC loses its rights to the database and to the schema
// public. The role is dropped when the test ends.
func Role(tb testing.TB, url string, grants func(role string) (string, error)) *pgxpool.Pool {
	tb.Helper()
	owner := Connect(tb, url)
	role := "gatepost_test_" + random()
	text, err := grants(role)
	if err != nil {
		tb.Fatal(err)
	}
	quoted := pgx.Identifier{role}.Sanitize()
	database := pgx.Identifier{owner.Config().ConnConfig.Database}.Sanitize()
	for _, sql := range []string{
		"CREATE ROLE " + quoted,
		"REVOKE ALL ON DATABASE " + database + " FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
		"CREATE SCHEMA IF NOT EXISTS app", "ALTER SCHEMA app OWNER TO " + quoted,
		text,
	} {
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
	cfg.ConnConfig.RuntimeParams["search_path"] = "app"
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}
