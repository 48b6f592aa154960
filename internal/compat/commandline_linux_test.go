package compat_test

import (
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// The operator's commands prepare nothing that a pooler of any version would have to know
// of: again and again, on the same few connections.
func TestPgBouncer_TheCommandLineWorks(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	binary := filepath.Join(t.TempDir(), "gatepost")
	build := osexec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/gatepost")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	through := pooledBy(t, direct, 2)
	for range 3 {
		for _, line := range []string{
			"run n -- true", "run m --no-wait -- sleep 0.1", "ls --all", "show n", "keys ls", "gc", "guard ls", "doctor --json", "migrate status", "ls --json",
		} {
			cmd := osexec.CommandContext(t.Context(), binary, strings.Fields(line)...)
			cmd.Env = append(cmd.Environ(), "DATABASE_URL="+through)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil && !strings.HasPrefix(line, "doctor") || strings.Contains(stderr.String(), "prepared") || strings.Contains(string(out), "prepared statement") {
				t.Errorf("gatepost %s: %v: %s%s", line, err, out, stderr.String())
			}
		}
	}
}
