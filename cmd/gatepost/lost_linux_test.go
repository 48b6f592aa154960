package main

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// beating is a run whose command shows signs of life.
type beating struct {
	*started
	name, file string
	deaths     []string // the files of all that beats
	monitor    int
}

// startBeating runs a puppet with manners.
func startBeating(t *testing.T, url string, flags, manners []string) *beating {
	t.Helper()
	b := &beating{name: pgtest.Name(t), file: t.TempDir() + "/life"}
	b.started = startRun(t, url, b.name, append(flags, command(t, append([]string{"beat", b.file}, manners...)...)...)...)
	if !slices.Contains(manners, "leave") {
		b.deaths = append(b.deaths, b.file)
	}
	if slices.Contains(manners, "fork") {
		b.deaths = append(b.deaths, b.file+".child")
	}
	for _, file := range b.deaths {
		await(t, "life in "+file, func() bool { _, ok := readLife(file); return ok })
	}
	if l, ok := readLife(b.file); ok {
		b.monitor = int(l.parent)
	}
	t.Cleanup(func() { b.noneIsLeft(t) })
	return b
}

// diedInTime waits until all that beats is gone, and demands that the last sign of life of
// each came before the lease could be another's, by the database's clock.
func (b *beating) diedInTime(t *testing.T) {
	t.Helper()
	for _, file := range b.deaths {
		l, _ := readLife(file)
		await(t, "the end of "+file, func() bool { return isOver(int(l.pid)) })
	}
	var expires time.Time
	err := pgtest.Pool(t).QueryRow(t.Context(), "SELECT expires_at FROM gatepost.leases WHERE name = $1", b.name).Scan(&expires)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range b.deaths {
		l, _ := readLife(file)
		if spare := expires.Sub(time.Unix(0, l.at)); spare <= 0 {
			t.Errorf("%s was alive %s after the lease could be another's", file, -spare)
		} else {
			t.Logf("the last sign of life came %s before that", spare)
		}
	}
}

// noneIsLeft waits until run, monitor, command and its children are gone.
func (b *beating) noneIsLeft(t *testing.T) {
	t.Helper()
	pids := []int{b.cmd.Process.Pid}
	if b.monitor != 0 {
		pids = append(pids, b.monitor)
	}
	for _, file := range b.deaths {
		l, _ := readLife(file)
		pids = append(pids, int(l.pid))
	}
	for _, pid := range pids {
		await(t, fmt.Sprintf("the end of %d of %d", pid, pids), func() bool { return isOver(pid) })
	}
}

func isOver(pid int) bool {
	state := stateOf(pid)
	return state == "" || state == "Z"
}

// stateOf is a process's, as ps shows it; empty when there is none.
func stateOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

// throughProxy is the shared database behind a network that can fail.
func throughProxy(t *testing.T) (string, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, pgtest.URL(t))
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(proxy.Address())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", host)
	q.Set("port", port)
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String(), proxy
}

// mannersOfAll are the commands that each way of losing a lease is tried with.
var mannersOfAll = map[string][]string{
	"polite":  nil,
	"deaf":    {"deaf"},
	"forks":   {"deaf", "fork"},
	"escapes": {"deaf", "fork", "session"},
}

func TestRun_InAPartitionTheCommandEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url, proxy := throughProxy(t)
			b := startBeating(t, url, []string{"--ttl", "3s"}, manners)
			proxy.SetStall(true)
			r := b.wait()
			want(t, r, 76, "was lost while the command ran: it could not be renewed in time; the command was ended with SIGTERM")
			if kind != "polite" && !strings.Contains(r.stderr, "SIGKILL") {
				t.Errorf("it says %q", r.stderr)
			}
			b.diedInTime(t)
		})
	}
}

// The other kind of partition: connections break, and new ones are refused at once.
func TestRun_WithoutAServerTheCommandEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url, proxy := throughProxy(t)
			b := startBeating(t, url, []string{"--ttl", "3s"}, manners)
			proxy.Cut()
			want(t, b.wait(), 76, "was lost while the command ran: it could not be renewed in time; the command was ended with SIGTERM")
			b.diedInTime(t)
		})
	}
}

// A command that stopped itself can't hear SIGTERM before it is continued.
func TestRun_ItsStoppedCommandEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url, proxy := throughProxy(t)
			b := startBeating(t, url, []string{"--ttl", "3s"}, manners)
			for _, file := range b.deaths {
				l, _ := readLife(file)
				signalTo(t, int(l.pid), syscall.SIGSTOP)
			}
			proxy.SetStall(true)
			want(t, b.wait(), 76, "was lost while the command ran")
			b.diedInTime(t)
		})
	}
}

func TestRun_KilledItsCommandEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := startBeating(t, pgtest.URL(t), []string{"--ttl", "3s"}, manners)
			signalTo(t, b.cmd.Process.Pid, syscall.SIGKILL)
			r := b.wait()
			b.diedInTime(t)
			if !strings.Contains(r.stderr, "is gone, and so its command was ended") {
				t.Errorf("it says %q", r.stderr)
			}
		})
	}
}

func TestRun_StoppedItsCommandEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := startBeating(t, pgtest.URL(t), []string{"--ttl", "3s"}, manners)
			signalTo(t, b.cmd.Process.Pid, syscall.SIGSTOP)
			b.diedInTime(t)
			signalTo(t, b.cmd.Process.Pid, syscall.SIGCONT)
			want(t, b.wait(), 76, "it could not be renewed in time")
		})
	}
}

func TestRun_WorkStopsFirstAndTheReleaseComesAfter(t *testing.T) {
	t.Parallel()
	for _, manners := range [][]string{{"fork", "leave"}, {"deaf", "fork", "leave"}, {"deaf", "fork", "leave", "session"}} {
		b := startBeating(t, pgtest.URL(t), []string{"--ttl", "30s", "--grace", "500ms"}, manners)
		want(t, b.wait(), 0, "the command left a process behind, ended before lease ")
		b.diedInTime(t) // a release makes the lease expire
		want(t, gatepost(t, pgtest.URL(t), "show", b.name), 0, "STATE     free for")
	}
}

func TestRun_WithoutItsMonitorItEndsTheCommandItself(t *testing.T) {
	t.Parallel()
	for kind, manners := range mannersOfAll {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := startBeating(t, pgtest.URL(t), nil, manners)
			signalTo(t, b.monitor, syscall.SIGKILL)
			want(t, b.wait(), 1, "the monitor process was killed, and so the command was ended")
			b.diedInTime(t)
			want(t, gatepost(t, pgtest.URL(t), "show", b.name), 0, "STATE     free for")
		})
	}
}

func TestRun_WhoseLeaseIsTakenAwayEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "3s"}, []string{"deaf"})
	execute(t, pgtest.Pool(t), "UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1", b.name)
	want(t, b.wait(), 76, "an operator released it, or another took it; the command was ended with SIGTERM and SIGKILL")
	b.noneIsLeft(t)
}

// A monitor that is stopped, too: the run ends the command by itself, and says so.
func TestRun_WhoseMonitorIsStoppedEndsTheCommandItself(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "3s"}, []string{"deaf"})
	signalTo(t, b.monitor, syscall.SIGSTOP)
	execute(t, pgtest.Pool(t), "UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1", b.name)
	l, _ := readLife(b.file)
	await(t, "the end of the command", func() bool { return isOver(int(l.pid)) })
	signalTo(t, b.monitor, syscall.SIGCONT)
	want(t, b.wait(), 76, "an operator released it, or another took it; the command was ended with SIGTERM and SIGKILL")
}

func TestRun_LearnsAtTheReleaseThatItsLeaseWasTakenAway(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "1h"}, nil)
	execute(t, pgtest.Pool(t), "UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1", b.name)
	signalTo(t, b.cmd.Process.Pid, syscall.SIGTERM)
	want(t, b.wait(), 76, "an operator released it, or another took it; the command had ended by itself")
}

// Who looks at the list of processes learns what the second one is for.
func TestRun_ItsMonitorSaysWhichLease(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), nil, nil)
	text, err := os.ReadFile("/proc/" + strconv.Itoa(b.monitor) + "/cmdline")
	if words := strings.ReplaceAll(string(text), "\x00", " "); err != nil || !strings.Contains(words, " of lease \""+b.name+"\" (token ") {
		t.Errorf("the monitor is %q (%v)", words, err)
	}
	signalTo(t, b.cmd.Process.Pid, syscall.SIGTERM)
	b.wait()
}

// A monitor once burnt a processor on the end of its pipe.
func TestRun_ItsMonitorRestsAfterTheRunIsGone(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "30s", "--grace", "4s"}, []string{"deaf"})
	before := cpuOf(t, b.monitor)
	signalTo(t, b.cmd.Process.Pid, syscall.SIGKILL)
	l, _ := readLife(b.file)
	var used time.Duration
	await(t, "the end", func() bool {
		if !isOver(b.monitor) {
			used = cpuOf(t, b.monitor) - before
		}
		return isOver(int(l.pid))
	})
	if used > time.Second {
		t.Errorf("in 4 s it took %s of processor time", used)
	}
}

// cpuOf is the processor time that a process has taken: proc_pid_stat(5), in ticks of
// which Linux shows 100 a second. 0 when there is none.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func TestRun_AndItsMonitorRest(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	s := startRun(t, pgtest.URL(t), name, "--ttl", "10s", "--", "sh", "-c", "sleep 3; kill -KILL $$")
	if r := s.wait(); r.code != 137 {
		t.Error(r)
	}
	// Those of the command and the monitor are in it.
	if cpu := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime(); cpu > 1500*time.Millisecond {
		t.Errorf("they took %s of processor time in 3 s", cpu)
	} else {
		t.Log(cpu)
	}
}
