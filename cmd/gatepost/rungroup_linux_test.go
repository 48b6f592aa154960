package main

import (
	"syscall"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// A signal is for all of the group, as from a terminal: a shell hands none to what it waits for.
func TestRun_PassesSignalsToTheWholeGroup(t *testing.T) {
	t.Parallel()
	cmd := program(t, pgtest.URL(t), "run", pgtest.Name(t), "--grace", "10s", "--", "sh", "-c",
		`trap : TERM; (trap 'echo the child got it; exit' TERM; echo ready; while :; do sleep 0.02; done) & wait; wait; echo the command ends`)
	next := lines(t, cmd)
	if line := next(); line != "ready" {
		t.Fatal(line)
	}
	signalTo(t, cmd.Process.Pid, syscall.SIGTERM)
	for _, wanted := range []string{"the child got it", "the command ends"} {
		if line := next(); line != wanted {
			t.Errorf("it printed %q, want %q", line, wanted)
		}
	}
}

// What is meant for the command doesn't end the second process, which is to end it in time.
func TestRun_ItsMonitorIsDeaf(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "1h"}, nil)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGTSTP} {
		signalTo(t, b.monitor, sig)
	}
	signalTo(t, b.cmd.Process.Pid, syscall.SIGTERM)
	if r := b.wait(); r.code != 143 || r.stderr != "" {
		t.Errorf("exit code %d, it says %q", r.code, r.stderr)
	}
}

// Who kills the run's process group doesn't reach the second process, and what that one
// can't end the kernel does.
func TestRun_KilledWithItsGroupItsCommandEnds(t *testing.T) {
	t.Parallel()
	b := &beating{name: pgtest.Name(t), file: t.TempDir() + "/life"}
	b.deaths = []string{b.file}
	b.started = &started{t: t, cmd: program(t, pgtest.URL(t), append([]string{"run", b.name, "--ttl", "1h", "--grace", "1s"}, command(t, "beat", b.file, "deaf")...)...)}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "life", func() bool { _, ok := readLife(b.file); return ok })
	l, _ := readLife(b.file)
	b.monitor = int(l.parent)
	if group, err := syscall.Getpgid(b.monitor); err != nil || group == b.cmd.Process.Pid {
		t.Errorf("the second process is in the run's group %d: %v", group, err)
	}
	signalTo(t, -b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait()
	b.noneIsLeft(t)
}

// Where both are killed there is nobody left who could end the command: the kernel does.
func TestRun_KilledWithItsMonitorItsCommandDies(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "1h"}, []string{"deaf"})
	signalTo(t, b.monitor, syscall.SIGSTOP)
	signalTo(t, b.cmd.Process.Pid, syscall.SIGKILL)
	await(t, "the end of the run", func() bool { return isOver(b.cmd.Process.Pid) })
	signalTo(t, b.monitor, syscall.SIGKILL)
	b.noneIsLeft(t)
}
