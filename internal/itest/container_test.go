package itest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// TestMain points pgtest, which migrates and makes each test's database, at a container.
func TestMain(m *testing.M) {
	container, url, err := start(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "no container of %s: %v\n"+
			"These tests need Docker: start it, and set GATEPOST_PG_IMAGE where the image can't be pulled.\n", image(), err)
		os.Exit(1)
	}
	if err := os.Setenv("GATEPOST_TEST_DATABASE_URL", url); err != nil {
		panic(err)
	}
	pgtest.Main(m, func() error { return testcontainers.TerminateContainer(container) })
}

// image is what pgtemp would run.
func image() string { return cmp.Or(os.Getenv("GATEPOST_PG_IMAGE"), pgtemp.DefaultImage) }

// start returns a container that is ready, and the URL of its database.
func start(ctx context.Context) (testcontainers.Container, string, error) {
	container, err := postgres.Run(ctx, image(), postgres.BasicWaitStrategies())
	if err != nil {
		return nil, "", errors.Join(err, testcontainers.TerminateContainer(container))
	}
	url, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, "", errors.Join(err, testcontainers.TerminateContainer(container))
	}
	return container, url, nil
}

// table makes a table of the test's own, in a database that others use too.
func table(t *testing.T, pool *pgxpool.Pool, columns string) string {
	t.Helper()
	name := pgx.Identifier{pgtest.Name(t)}.Sanitize()
	exec(t, pool, "CREATE TABLE "+name+" ("+columns+")")
	return name
}

// exec runs a statement that has to succeed.
func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// count is the number of a table's rows.
func count(t *testing.T, pool *pgxpool.Pool, table string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
