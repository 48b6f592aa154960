//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

func TestRun_WaitsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	client, err := pglock.New(pgtest.Pool(t), pglock.Config{Holder: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	lease, err := client.TryAcquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, runs(t, name, "--no-wait", "--", "echo", "ran"), 75, "is held by web-1 (token "+tokenText(lease.Token()))
	want(t, runs(t, name, "--wait", "0", "--", "echo", "ran"), 75, "is held by web-1")
	start := time.Now()
	want(t, runs(t, name, "--wait", "300ms", "--", "echo", "ran"), 75, "is held by web-1")
	if waited := time.Since(start); waited < 300*time.Millisecond {
		t.Errorf("it waited %s", waited)
	}
	for _, sig := range heard(syscall.SIGINT, syscall.SIGHUP) {
		waiter := waitingRun(t, name, "echo", "ran")
		signalTo(t, waiter.cmd.Process.Pid, sig)
		if r := waiter.wait(); r.code != 128+int(sig) || r.stdout != "" {
			t.Errorf("%s while it waits: %+v", sig, r)
		}
	}
	waiter := waitingRun(t, name, "echo", "ran")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, waiter.wait(), 0, "ran\n")
}

// Several at once: one command at a time, and each has its turn.
func TestRun_OneCommandAtATime(t *testing.T) {
	t.Parallel()
	name, file := pgtest.Name(t), t.TempDir()+"/log"
	all := make([]*started, 5)
	for i := range all {
		all[i] = startRun(t, pgtest.URL(t), name, "--", "sh", "-c", fmt.Sprintf("echo in %d >>%s; sleep 0.1; echo out %d >>%s", i, file, i, file))
	}
	for _, s := range all {
		want(t, s.wait(), 0, "")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		if strings.Replace(lines[i], "in ", "out ", 1) != lines[i+1] {
			t.Errorf("two ran at once: %q", lines)
		}
	}
	if len(lines) != 2*len(all) {
		t.Errorf("not each had its turn: %q", lines)
	}
}

// heard leaves out what this process was started to ignore, as under nohup: a run that
// it starts ignores that too, and is meant to.
func heard(signals ...syscall.Signal) []syscall.Signal {
	return slices.DeleteFunc(signals, func(sig syscall.Signal) bool { return signal.Ignored(sig) })
}

func TestRun_PassesSignalsOn(t *testing.T) {
	t.Parallel()
	cmd := program(t, pgtest.URL(t), append([]string{"run", pgtest.Name(t)}, command(t, "signals")...)...)
	next := lines(t, cmd)
	if line := next(); line != "ready" {
		t.Fatal(line)
	}
	for _, sig := range heard(
		syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTERM,
	) {
		signalTo(t, cmd.Process.Pid, sig)
		if line := next(); line != sig.String() {
			t.Errorf("of %q came %q", sig, line)
		}
	}
}

func TestRun_PassesUserSignalsToTheCommandAlone(t *testing.T) {
	t.Parallel()
	cmd := program(t, pgtest.URL(t), "run", pgtest.Name(t), "--", "sh", "-c",
		`sleep 60 & trap 'echo got it; kill -0 $! && echo the other lives; kill $!; exit' USR1; echo ready; wait`)
	next := lines(t, cmd)
	next()
	signalTo(t, cmd.Process.Pid, syscall.SIGUSR1)
	for _, wanted := range []string{"got it", "the other lives"} {
		if line := next(); line != wanted {
			t.Errorf("it printed %q, want %q", line, wanted)
		}
	}
}

// What nohup and a shell's & have a program ignore, its command ignores too.
func TestRun_LeavesIgnoredSignalsIgnored(t *testing.T) {
	t.Parallel()
	gp := program(t, pgtest.URL(t), "run", pgtest.Name(t), "--", "sh", "-c", "kill -HUP $$; kill -INT $$; echo alive")
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap '' HUP INT; exec "$@"`, "sh"}, gp.Args...)...)
	cmd.Env = gp.Env
	if out, err := cmd.Output(); err != nil || string(out) != "alive\n" {
		t.Errorf("it printed %q (%v)", out, err)
	}
}
