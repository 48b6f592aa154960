// Package pgtest gives tests a real PostgreSQL with Gatepost's schema.
//
// A test binary shares one server, started by the first test that asks and stopped by
// Main. A test asks for what it needs, the cheapest first:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	pool := pgtest.Pool(t)     // the shared database, a lease name of its own from Name
//	url := pgtest.Database(t)  // a database of its own: 20 ms in memory
//
// When GATEPOST_TEST_DATABASE_URL is set, its server is used and left running; the role
// needs CREATEDB, and the databases made there are dropped. A machine without any server
// fails the tests with the remedy; nothing is skipped.
//
// The same tests can be run in front of other things than a bare server:
//
//	GATEPOST_TEST_SETTINGS  settings of the server: name=value;name=value
//	GATEPOST_TEST_PARAMS    parameters of the tests' URLs: name=value&name=value
//	GATEPOST_TEST_POOLER    pgbouncer: through one, in transaction mode
//	GATEPOST_TEST_ROLE      1: as a role with what migrations.Grants gives, and no more
//
// With the last two, what a test itself needs a session for goes over Direct, what it
// does to Gatepost's schema over Owner; and a test whose claim isn't one there is skipped
// by NotPooled or NotAsRole, with the reason. Databases that are not migrated are always
// their owner's, and direct: migrating needs both.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dropTimeout bounds a clean-up, which runs after the test's context ended.
const dropTimeout = 30 * time.Second

// Main runs the tests, stops the server, and exits: the whole of a TestMain. Each check
// runs after that, and one that returns an error fails the run; such as
//
//	pgtest.Main(m, func() error { return goleak.Find() })
func Main(m *testing.M, checks ...func() error) {
	code := m.Run()
	for _, check := range append([]func() error{stop}, checks...) {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// URL is the URL of the shared migrated database. Tests run in it side by side, so it is
// for those whose rows have a name of their own.
func URL(tb testing.TB) string {
	tb.Helper()
	return server(tb).testURL(server(tb).shared)
}

// Pool is a pool on the shared migrated database, closed when the test ends.
func Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, URL(tb))
}

// Connect is a pool on the database of url, changed by each of change and closed when the
// test ends. One whose sessions begin with settings is past a pooler, which refuses that.
func Connect(tb testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.NewWithConfig(tb.Context(), config(tb, url, change))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// ReadCommitted is Pool for a test whose claim is about READ COMMITTED, PostgreSQL's own
// default, or counts how often a transaction runs: what it begins is that, whatever
// GATEPOST_TEST_SETTINGS says. A pooler refuses to be told so: the two don't go together.
func ReadCommitted(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	if Pooled() {
		return Pool(tb)
	}
	cfg, err := pgxpool.ParseConfig(URL(tb))
	if err != nil {
		tb.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Repeat calls do, a statement of the test's own, again while it fails with a
// serialization failure: where GATEPOST_TEST_SETTINGS makes SERIALIZABLE the default,
// tests that run side by side in one database are each other's conflicts.
func Repeat(do func() error) error {
	for {
		err := do()
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" {
			return err
		}
	}
}

// Database is the URL of a migrated database of the test's own, dropped when the test
// ends, whoever is connected.
func Database(tb testing.TB) string {
	tb.Helper()
	s := server(tb)
	name := database(tb, s.template)
	if err := s.equip(tb.Context(), name); err != nil {
		tb.Fatal(err)
	}
	return s.testURL(name)
}

// EmptyDatabase is a Database that has not been migrated, direct and as its owner.
func EmptyDatabase(tb testing.TB) string {
	tb.Helper()
	s := server(tb)
	return s.withParams(s.url(database(tb, "template0")))
}

// Name is a lease name that no other test has: the test's own, shortened, and something
// random.
func Name(tb testing.TB) string {
	tb.Helper()
	return plain(tb.Name(), 80) + "-" + random()
}

// database is the name of a copy of template, which lives as long as the test.
func database(tb testing.TB, template string) string {
	tb.Helper()
	s := server(tb)
	name := databaseName()
	if err := s.create(tb.Context(), name, template); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			tb.Error(err)
		}
	})
	return name
}

// databaseName is a name that no other test has, on a server shared with others too.
func databaseName() string { return "gatepost_test_" + random() }

// random is 50 bits, in lower case so that SQL needs no quotes.
func random() string { return strings.ToLower(rand.Text()[:10]) }

// plain is the beginning of s in letters, digits, dashes and underscores.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, s)
	return s[:min(len(s), most)]
}
