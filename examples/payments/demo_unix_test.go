//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestDemo_LeavesNothingWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Owner(t, pgtest.Database(t)) // no pooler: connections show processes
			d := startDemo(t, url)
			if err := d.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code, stderr := d.wait(); code != 1 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q; want 1 and one line", code, stderr)
			}
			noConnection(t, url)
			nothingLeft(t, url)
		})
	}
}

func TestDemo_LeavesNothingWhenItsReaderGoesAway(t *testing.T) {
	t.Parallel()
	url := pgtest.Owner(t, pgtest.Database(t)) // no pooler: connections show processes
	d := startDemo(t, url)
	if err := d.stdout.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := d.wait(); code != 1 || !strings.Contains(stderr, "broken pipe") {
		t.Errorf("exit code %d, stderr %q; want 1 and the reason", code, stderr)
	}
	noConnection(t, url)
	nothingLeft(t, url)
}

func TestDemo_LeavesNoProcessWhenItIsKilled(t *testing.T) {
	t.Parallel()
	url := pgtest.Owner(t, pgtest.Database(t)) // no pooler: connections show processes
	d := startDemo(t, url)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = d.wait()
	noConnection(t, url)
}

// runningDemo is a demo whose service is running.
type runningDemo struct {
	cmd    *exec.Cmd
	stdout io.ReadCloser
	stderr bytes.Buffer
}

func startDemo(t *testing.T, url string) *runningDemo {
	t.Helper()
	d := &runningDemo{cmd: program(t, "demo", "--database-url", url)}
	d.cmd.Stderr = &d.stderr
	var err error
	if d.stdout, err = d.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(d.stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "stored the reply") {
			return d
		}
	}
	_, stderr := d.wait()
	t.Fatalf("it ended before a charge was stored: %s", stderr)
	return nil
}

// wait reads the rest and gives the exit code and what was said on stderr.
func (d *runningDemo) wait() (code int, stderr string) {
	_, _ = io.Copy(io.Discard, d.stdout) // closed in one test
	_ = d.cmd.Wait()                     // the exit code says it
	return d.cmd.ProcessState.ExitCode(), d.stderr.String()
}

// noConnection waits until no process of a demo is connected to its database.
func noConnection(t *testing.T, url string) {
	t.Helper()
	pool := pgtest.Connect(t, url)
	for deadline := time.Now().Add(30 * time.Second); ; {
		var left int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", left)
		}
		<-time.After(10 * time.Millisecond) // polls a state
	}
}
