//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
)

// pooler returns a PgBouncer that the end of the test stops.
func pooler(t *testing.T, server string, opts *pgtemp.PoolerOptions) *pgtemp.Pooler {
	t.Helper()
	p, err := pgtemp.StartPooler(t.Context(), server, opts)
	if errors.Is(err, pgtemp.ErrNoPooler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPooler_TakesConnectionsInTurns(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	run(t, server.URL(""), "CREATE DATABASE other")
	p := pooler(t, server.URL(""), &pgtemp.PoolerOptions{Size: 3})
	conn, err := pgx.Connect(t.Context(), p.URL("other")+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	seen := map[int]bool{}
	for len(seen) < 3 && t.Context().Err() == nil {
		var pid int
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		seen[pid] = true
	}
	run(t, server.URL(""), "DROP DATABASE other WITH (FORCE)")
}

func TestPooler_LetsRolesInThatAreMadeLater(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	p := pooler(t, server.URL(""), nil)
	run(t, server.URL(""), "CREATE ROLE later LOGIN")
	as := strings.Replace(p.URL("postgres"), "postgres:@", "later@", 1)
	conn, err := pgx.Connect(t.Context(), as+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(as, err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var user string
	if err := conn.QueryRow(t.Context(), "SELECT current_user").Scan(&user); err != nil || user != "later" {
		t.Errorf("it is %q, %v", user, err)
	}
}

func TestPooler_LeavesNothing(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	p := pooler(t, server.URL(""), nil)
	cfg, err := pgx.ParseConfig(p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(cfg.Host)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a stopped PgBouncer: %v, want none", err)
	}
	if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a stopped PgBouncer takes connections")
	}
}

func TestStartPooler_SaysWhyNot(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	_ = pooler(t, server.URL(""), nil) // or skips
	_, err := pgtemp.StartPooler(t.Context(), server.URL(""), &pgtemp.PoolerOptions{Mode: "none such"})
	if err == nil || !strings.Contains(err.Error(), `invalid value "none such" for parameter pool_mode`) {
		t.Errorf("got %v, want what PgBouncer says", err)
	}
}
