//go:build unix

package pgtemp_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
)

func TestStop_LeavesNothing(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	home, pid := homeOf(t, server.URL("")), server.Pid()

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal to the server's process: got %v, want %v", err, syscall.ESRCH)
	}
	if exists(home) {
		t.Errorf("%s is still there", home)
	}
	if left := processesIn(home); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	if err := server.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestStart_SweepsAfterAKilledProcess(t *testing.T) {
	t.Parallel()
	h := startHelper(t, order{})
	home := homeOf(t, h.URL)
	h.kill(t)
	if runtime.GOOS == "linux" { // elsewhere the next Start ends the server
		eventually(t, "the server ends with its parent", func() bool { return !serves(t, h.URL) })
	}
	start(t, nil)
	if exists(home) {
		t.Errorf("%s is still there after the next Start", home)
	}
	if serves(t, h.URL) {
		t.Error("the dead process's server still runs")
	}
}

func TestStart_LeavesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	other, err := os.MkdirTemp("", "gatepost-pg-") //nolint:usetesting // it has to lie where the servers' own do
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	owned := startHelper(t, order{})

	start(t, nil)
	if !exists(other) {
		t.Error("a directory without an owner was removed")
	}
	if !exists(homeOf(t, owned.URL)) || !serves(t, owned.URL) {
		t.Error("another process's server was removed")
	}
}

func TestStart_LeavesNothingWhenCancelled(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Nanosecond, 50 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			h := startHelper(t, order{Options: pgtemp.Options{Durable: true}, Timeout: after}, "TMPDIR="+dir)
			if h.Err == "" {
				return // it was faster
			}
			h.wantError(t, "deadline exceeded")
			if left := entries(t, dir); len(left) > 0 {
				t.Errorf("left on the disk: %v", left)
			}
			if left := processesIn(dir); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
		})
	}
}

func TestStart_WorksBelowALongTempDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := startHelper(t, order{Options: pgtemp.Options{Durable: true}}, "TMPDIR="+dir)
	if h.Err != "" {
		t.Fatal(h.Err)
	}
	if got := query(t, h.URL, "SHOW fsync"); got != "on" {
		t.Errorf("fsync of a durable server: got %s, want on", got)
	}
	socket := homeOf(t, h.URL)
	if strings.HasPrefix(socket, dir) {
		t.Errorf("got the socket %s, want one outside of TMPDIR", socket)
	}
	h.finish(t)
	if left := entries(t, dir); len(left) > 0 || exists(socket) {
		t.Errorf("left in TMPDIR: %v; left of the socket: %v", left, exists(socket))
	}
}

func TestStart_ShowsWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	_, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: map[string]string{"max_connections": "many"}})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Errorf("got the error %v, want one with the server's words on max_connections", err)
	}
}

func TestStart_ShowsWhatInitdbSaid(t *testing.T) {
	t.Parallel()
	// Links, not scripts: a file that was just written can be busy while others fork.
	bin := openDir(t)
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.Symlink("/bin/ls", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := pgtemp.Start(t.Context(), &pgtemp.Options{BinDir: bin})
	if err == nil || !strings.Contains(err.Error(), "option") {
		t.Errorf("got the error %v, want one with the words of ls on its options", err)
	}
}
