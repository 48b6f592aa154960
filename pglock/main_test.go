package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

// client is a client of its own on the pool, closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool, cfg pglock.Config) *pglock.Client {
	t.Helper()
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
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// value reads one value.
func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
