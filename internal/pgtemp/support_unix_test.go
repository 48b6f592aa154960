//go:build unix

package pgtemp_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// openDir is a directory for the test that the server's user can reach; t.TempDir is
// closed to others.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// socketOf is the directory of the socket in a server's URL.
func socketOf(t *testing.T, serverURL string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

// homeOf is the directory that has to go with the server.
func homeOf(t *testing.T, serverURL string) string {
	t.Helper()
	return filepath.Dir(socketOf(t, serverURL))
}

// serves says whether something listens on the server's socket.
func serves(t *testing.T, serverURL string) bool {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(socketOf(t, serverURL), ".s.PGSQL.5432"))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// eventually waits for a state, which has to come within 20 s.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processesIn are the command lines that name dir, where the system shows them as files.
func processesIn(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), dir) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}
