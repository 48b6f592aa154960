package itest_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// databaseURL is that of the container's migrated database, which the tests share.
var databaseURL string

func TestMain(m *testing.M) {
	os.Exit(run(context.Background(), m))
}

// run is TestMain with deferred clean-ups.
func run(ctx context.Context, m *testing.M) int {
	container, err := postgres.Run(ctx, image(), postgres.WithDatabase("app"), postgres.BasicWaitStrategies())
	defer func() {
		if err := testcontainers.TerminateContainer(container); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if err == nil {
		databaseURL, err = container.ConnectionString(ctx, "sslmode=disable")
	}
	if err == nil {
		err = migrate(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "no container of %s: %v\nThese tests need a Docker engine: start Docker, or leave them out.\n", image(), err)
		return 1
	}
	return m.Run()
}

// image is what pgtemp would run.
func image() string { return cmp.Or(os.Getenv("GATEPOST_PG_IMAGE"), pgtemp.DefaultImage) }

func migrate(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

// connect is a pool on the container's database, closed when the test ends.
func connect(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
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
