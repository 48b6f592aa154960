//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// Ctrl-C in the middle leaves no schema, lease or key behind.
func TestBench_InterruptedCleansUp(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	pool := pgtest.Connect(t, url)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "bench", "acquire", "--block", "1000000")
	cmd.Env = append(os.Environ(), envMain+"=1", "DATABASE_URL="+url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := func() (n int) {
		err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'gatepost\_bench\_%')
			+ (SELECT count(*) FROM gatepost.leases)`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); left() < 2; { // the schema and the first lease
		if time.Now().After(deadline) {
			t.Fatal("it did not begin within 30 s")
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d schemas and leases are left", n)
	}
}
