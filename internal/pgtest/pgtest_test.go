package pgtest_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

func TestPool_IsMigrated(t *testing.T) {
	t.Parallel()
	if !hasSchema(t, pgtest.Pool(t)) {
		t.Error("the shared database has no schema gatepost")
	}
}

func TestDatabase_IsMigratedAndOwn(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Database(t), pgtest.Database(t)
	if first == second || first == pgtest.URL(t) {
		t.Errorf("got the databases %s and %s, want different ones", first, second)
	}
	if !hasSchema(t, pgtest.Connect(t, first)) {
		t.Error("a test's own database has no schema gatepost")
	}
}

//nolint:tparallel // the end of the subtest is the point
func TestDatabase_IsDroppedWhoeverIsConnected(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("the test that has it", func(t *testing.T) {
		url = pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) }) // runs first, on a closed context
	})
	if conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, url)); err == nil { // a pooler asks no server yet
		_ = conn.Close(t.Context())
		t.Error("the database outlived its test")
	}
}

func TestEmptyDatabase_IsNotMigrated(t *testing.T) {
	t.Parallel()
	if hasSchema(t, pgtest.Connect(t, pgtest.EmptyDatabase(t))) {
		t.Error("an empty database has the schema gatepost")
	}
}

func TestName_IsUniqueAndShort(t *testing.T) {
	t.Parallel()
	t.Run(strings.Repeat("a long name/", 50), func(t *testing.T) {
		t.Parallel()
		first, second := pgtest.Name(t), pgtest.Name(t)
		if first == second {
			t.Errorf("got %q twice", first)
		}
		if len(first) > 100 {
			t.Errorf("got %d bytes, want at most 100", len(first))
		}
	})
}

func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		pgtest.Database(b)
	}
}

// hasSchema says whether the database has been migrated.
func hasSchema(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	var found bool
	err := pool.QueryRow(t.Context(), "SELECT to_regclass('gatepost.leases') IS NOT NULL").Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
