//go:build linux

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cluster is the server of a run: another one after a failover.
type cluster struct{ primary atomic.Pointer[node] }

// node is a server, and the conductor's own way to it.
type node struct {
	server *pgtemp.Server
	admin  *pgxpool.Pool
}

func (c *cluster) server() *pgtemp.Server { return c.primary.Load().server }
func (c *cluster) admin() *pgxpool.Pool   { return c.primary.Load().admin }

// settings are what the faults need of a server.
var settings = map[string]string{"max_prepared_transactions": "50", "wal_level": "replica"}

// newCluster starts a server with Gatepost's schema and the audit tables.
func newCluster(t *testing.T, defaults map[string]string, env []string) *cluster {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: settings, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{}
	c.primary.Store(&node{server: server, admin: connect(t, server)})
	if err := migrations.Up(t.Context(), c.admin()); err != nil {
		t.Fatal(err)
	}
	c.exec(t, auditSQL)
	for name, value := range defaults {
		c.exec(t, fmt.Sprintf(`ALTER DATABASE postgres SET %s = '%s'`, name, value))
	}
	return c
}

// connect is a pool of the conductor's own, which doesn't share the workers' defaults.
func connect(t *testing.T, server *pgtemp.Server) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, server.URL("")+"&default_transaction_isolation=read%20committed")
}

func (c *cluster) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := c.admin().Exec(t.Context(), sql, args...); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// try is exec for what a fault may get in the way of.
func (c *cluster) try(ctx context.Context, sql string, args ...any) error {
	_, err := c.admin().Exec(ctx, sql, args...)
	return err
}

// restart ends the server in one of three ways and starts it again.
func (c *cluster) restart(t *testing.T, how crash) {
	t.Helper()
	shutdown := pgtemp.Immediate
	switch how {
	case restarted:
		shutdown = pgtemp.Fast
	case killed:
		_ = syscall.Kill(c.server().Pid(), syscall.SIGKILL)
	case crashed:
	}
	// Backends that outlive their postmaster for a moment keep the next one out.
	deadline := time.Now().Add(time.Minute)
	for {
		err := c.server().Restart(t.Context(), shutdown)
		if err == nil || errors.Is(err, context.Canceled) {
			return
		}
		if how != killed || time.Now().After(deadline) {
			t.Errorf("the server doesn't come back: %v", err)
			return
		}
		pause(t.Context(), 50*time.Millisecond)
	}
}

// crash is a way for a server to end.
type crash int

const (
	restarted crash = iota
	crashed
	killed
)

// quiet waits until the workers have no session left, and their transactions are over.
func (c *cluster) quiet(t *testing.T) {
	t.Helper()
	const sessions = `SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^w[0-9]'`
	var left int
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); pause(t.Context(), 50*time.Millisecond) {
		if c.admin().QueryRow(t.Context(), sessions).Scan(&left) == nil && left == 0 {
			return
		}
	}
	var who []string
	_ = c.admin().QueryRow(t.Context(), `
		SELECT array_agg(concat_ws(' ', application_name, state, wait_event, age(clock_timestamp(), state_change)::text, left(query, 80)))
		FROM pg_stat_activity WHERE application_name ~ '^w[0-9]'`).Scan(&who)
	t.Errorf("%d sessions are left of workers that have ended:\n\t%s", left, strings.Join(who, "\n\t"))
}
