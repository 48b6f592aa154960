package compat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// client is closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool, cfg pglock.Config) *pglock.Client {
	t.Helper()
	c, err := pglock.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// acquire takes a lease that must be free.
func acquire(t *testing.T, c *pglock.Client, name string) *pglock.Lease {
	t.Helper()
	l, err := c.TryAcquire(t.Context(), name, nil)
	if err != nil {
		t.Fatalf("TryAcquire(%q): %v", name, err)
	}
	return l
}

func release(t *testing.T, l *pglock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// granted acquires in the background.
func granted(t *testing.T, c *pglock.Client, name string) <-chan *pglock.Lease {
	t.Helper()
	leases := make(chan *pglock.Lease, 1)
	go func() {
		l, err := c.Acquire(t.Context(), name, nil)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("Acquire: %v", err)
		}
		leases <- l
	}()
	return leases
}

// within fails unless the lease comes.
func within(t *testing.T, d time.Duration, leases <-chan *pglock.Lease) *pglock.Lease {
	t.Helper()
	select {
	case l := <-leases:
		if l == nil {
			t.FailNow() // granted has said why
		}
		return l
	case <-time.After(d):
		t.Fatalf("not granted within %s", d)
		return nil
	}
}

// expire backdates a lease, as if its holder had been stopped for long.
func expire(t *testing.T, pool *pgxpool.Pool, name string) {
	t.Helper()
	exec(t, pool, `UPDATE gatepost.leases SET renewed_at = clock_timestamp() - interval '2 s',
		expires_at = clock_timestamp() - interval '1 s' WHERE name = $1`, name)
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

// eventually polls a state until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 15 s", what)
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want one that matches %v", err, want)
	}
}
