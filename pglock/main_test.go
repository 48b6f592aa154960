package pglock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(envPuppet); text != "" {
		os.Exit(beAPuppet(text))
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "12") // most of the time they wait
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "25") // each of some 30 steps, over a real server
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// client is a client of its own on the pool, closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool, cfg pglock.Config) *pglock.Client {
	t.Helper()
	if pgtest.Pooled() && cfg.Control == nil && cfg.PollInterval >= time.Minute { // only a notification wakes its waiters
		cfg.Control = pgtest.Connect(t, pgtest.Direct(t, pool.Config().ConnString()))
	}
	c, err := pglock.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// acquire takes a lease that must be free.
func acquire(t *testing.T, c *pglock.Client, name string, opts *pglock.AcquireOptions) *pglock.Lease {
	t.Helper()
	l, err := c.TryAcquire(t.Context(), name, opts)
	if err != nil {
		t.Fatalf("TryAcquire(%q): %v", name, err)
	}
	return l
}

// wantErr fails unless err matches.
func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want one that matches %v", err, want)
	}
}

// eventually polls a state until it holds.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}

// expire backdates a lease, as if its holder had been stopped for long.
func expire(t *testing.T, pool *pgxpool.Pool, name string) {
	t.Helper()
	exec(t, pool, `UPDATE gatepost.leases SET renewed_at = clock_timestamp() - interval '2 s', expires_at = clock_timestamp() - interval '1 s' WHERE name = $1`, name)
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	err := pgtest.Repeat(func() error { _, err := pool.Exec(t.Context(), sql, args...); return err })
	if err != nil {
		t.Fatal(err)
	}
}

// owner is a pool of the schema's owner on the database of another.
func owner(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, pgtest.Owner(t, pool.Config().ConnString()))
}

// value reads one value.
func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	err := pgtest.Repeat(func() error { return pool.QueryRow(t.Context(), sql, args...).Scan(&v) })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// poolOf is a pool of that configuration, closed when the test ends.
func poolOf(t *testing.T, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// poolWith is a pool on the database of url, changed by each of change.
func poolWith(t *testing.T, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, url, change...)
}

// setting starts each session of a pool with a setting.
func setting(name, value string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams[name] = value }
}

// throughProxy is a pool whose connections all go through a proxy.
func throughProxy(t *testing.T, maxConns int32) (*pgxpool.Pool, *faultproxy.Proxy) {
	t.Helper()
	return faultproxy.Pool(t, pgtest.URL(t), maxConns)
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.MaxConns = n }
}

// session is a connection of the test's own, outside any pool of a client, and past a
// pooler.
func session(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	cfg := pool.Config().ConnConfig
	if pgtest.Pooled() {
		direct, err := pgx.ParseConfig(pgtest.Direct(t, cfg.ConnString()))
		if err != nil {
			t.Fatal(err)
		}
		direct.RuntimeParams, cfg = cfg.RuntimeParams, direct
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// begin is a transaction in a session of its own.
func begin(t *testing.T, pool *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := session(t, pool).BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// lockRow locks a lease's row as an operator in psql would, until the
// transaction that is returned ends.
func lockRow(t *testing.T, pool *pgxpool.Pool, name string) pgx.Tx {
	t.Helper()
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.leases WHERE name = $1 FOR UPDATE`, name); err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// table is a table of the test's own with one text column, note.
func table(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	name := pgx.Identifier{"t_" + strings.ToLower(rand.Text())}.Sanitize()
	exec(t, pool, "CREATE TABLE "+name+" (note text)")
	return name
}

func rows(t *testing.T, pool *pgxpool.Pool, table string) int {
	t.Helper()
	return value[int](t, pool, "SELECT count(*) FROM "+table)
}

// insert writes one row in a transaction.
func insert(ctx context.Context, tx pgx.Tx, table, note string) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", note)
	return err
}

// lease is what the row of a name says.
type leaseRow struct {
	Token                      int64
	Held                       bool
	Acquired, Renewed, Expires time.Time
	Now                        time.Time // the database's clock
	Transitions                int64
	TTL                        time.Duration
}

func row(t *testing.T, pool *pgxpool.Pool, name string) leaseRow {
	t.Helper()
	var r leaseRow
	err := pgtest.Repeat(func() error {
		return pool.QueryRow(t.Context(), `
		SELECT token, nonce IS NOT NULL, acquired_at, renewed_at, expires_at, clock_timestamp(), transitions
		FROM gatepost.leases WHERE name = $1`, name,
		).Scan(&r.Token, &r.Held, &r.Acquired, &r.Renewed, &r.Expires, &r.Now, &r.Transitions)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.TTL = r.Expires.Sub(r.Renewed)
	return r
}

// renewedAgain waits until heartbeats have renewed a lease twice from now on.
func renewedAgain(t *testing.T, pool *pgxpool.Pool, name string) {
	t.Helper()
	for range 2 {
		from := row(t, pool, name).Renewed
		eventually(t, "renewal of "+name, 10*time.Second, func() bool { return row(t, pool, name).Renewed.After(from) })
	}
}

// blocked waits until a backend waits for a lock that pid holds.
func blocked(t *testing.T, pool *pgxpool.Pool, by uint32) {
	t.Helper()
	eventually(t, "a backend that waits for a lock", 10*time.Second, func() bool { return isBlocked(t, pool, by) })
}

func isBlocked(t *testing.T, pool *pgxpool.Pool, by uint32) bool {
	t.Helper()
	return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid)))`, int32(by))
}

// soon is closed in time for a test that would otherwise hang.
func soon(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
	}
}

// reached waits until a fault has happened, and says when that was.
func reached(t *testing.T, fault <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-fault:
		return at
	case <-time.After(20 * time.Second):
		t.Fatal("the fault has not happened within 20 s")
		return time.Time{}
	}
}

// nothing is a transaction's work where the transaction is the point.
func nothing(pgx.Tx) error { return nil }
