package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// envMain makes the test binary be payments itself, so that the tests run the real
// program in processes of its own; and so do the processes that it starts.
const envMain = "PAYMENTS_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	pgtest.Main(m)
}

// program is payments with these arguments, not started yet.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	// The race detector has each process wait for a second at its end otherwise.
	cmd.Env = append(os.Environ(), envMain+"=1", "DATABASE_URL=", "GORACE=atexit_sleep_ms=0",
		"TMPDIR="+t.TempDir()) // a demo that is killed leaves the provider's ledger
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
