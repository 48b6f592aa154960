package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envMain makes the test binary be fileimport itself, so that the tests run the
// real program in processes of its own.
const envMain = "FILEIMPORT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	pgtest.Main(m)
}

// program is fileimport with these arguments, not started yet.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), envMain+"=1", "DATABASE_URL=")
	return cmd
}

// result is what a program printed and its exit code.
type result struct {
	stdout, stderr string
	code           int
}

func runProgram(t *testing.T, args ...string) result {
	t.Helper()
	cmd := program(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// write makes a file of the test's own.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// count is the number of rows of a table, 0 when there is none.
func count(t *testing.T, pool *pgxpool.Pool, table string) (n int) {
	t.Helper()
	var present bool
	if err := pool.QueryRow(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&present); err != nil {
		t.Fatal(err)
	}
	if present {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// text reads one text value.
func text(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (v string) {
	t.Helper()
	if err := pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// oneLineWith fails unless the program printed one line of error with each part.
func oneLineWith(t *testing.T, r result, code int, parts ...string) {
	t.Helper()
	line := strings.TrimSuffix(r.stderr, "\n")
	if r.code != code || strings.Contains(line, "\n") || r.stdout != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %d and one line", r.code, r.stdout, r.stderr, code)
	}
	for _, p := range parts {
		if !strings.Contains(line, p) {
			t.Errorf("error %q lacks %q", line, p)
		}
	}
}
