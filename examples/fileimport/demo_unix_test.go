//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestDemo_ComesOutAsPromised(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	r := runProgram(t, "demo", "--database-url", url, "--ttl", "1s")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d, %s; it printed\n%s", r.code, r.stderr, r.stdout)
	}
	wantSums(t, r.stdout,
		"records 12,000; rows in the table 23,500; duplicates 11,500; refused writes 0",
		"records 12,000; rows in the table 12,000; duplicates 0; refused writes 1",
		"records 12,000; rows in the table 12,000; duplicates 0; refused writes 0")
	for _, want := range []string{"ACCEPTED", "REFUSED"} {
		if got := strings.Count(r.stdout, want); got != 1 {
			t.Errorf("got %s %d times, want once:\n%s", want, got, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if len(line) > 81 || strings.ContainsAny(line, "\x1b\t") {
			t.Errorf("a line is not plain text of 80 columns: %q", line)
		}
	}
	nothingLeft(t, url, r.stdout)
}

func TestDemo_WorksOnATemporaryServer(t *testing.T) {
	t.Parallel()
	r := runProgram(t, "demo", "--ttl", "700ms", "--records", "24")
	if r.code != 0 {
		t.Fatalf("exit code %d, %s; it printed\n%s", r.code, r.stderr, r.stdout)
	}
	wantSums(t, r.stdout,
		"records 24; rows in the table 47; duplicates 23; refused writes 0",
		"records 24; rows in the table 24; duplicates 0; refused writes 1",
		"records 24; rows in the table 24; duplicates 0; refused writes 0")
}

func TestDemo_LeavesNothingWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Creator(t, pgtest.Database(t))
			d := startDemo(t, "--database-url", url)
			d.until("SIGSTOP")
			d.signal(d.cmd.Process.Pid, sig)
			code, stderr := d.wait()
			if code != 1 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q; want 1 and one line", code, stderr)
			}
			nothingLeft(t, url, d.printed.String())
		})
	}
}

func TestDemo_LeavesNoStoppedProcessWhenItIsKilled(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--database-url", pgtest.Creator(t, pgtest.Database(t)))
	d.until("SIGSTOP")
	d.signal(d.cmd.Process.Pid, syscall.SIGKILL)
	_, _ = d.wait()
	noProcess(t, d.printed.String())
}

func TestDemo_LeavesNothingWhenItsReaderGoesAway(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	d := startDemo(t, "--database-url", url, "--ttl", "300ms")
	d.until("SIGSTOP")
	if err := d.stdout.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := d.wait(); code != 1 || !strings.Contains(stderr, "broken pipe") {
		t.Errorf("exit code %d, stderr %q; want 1 and the reason", code, stderr)
	}
	nothingLeft(t, url, d.printed.String())
}

func TestDemo_FailsWhenItGoesAnotherWay(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(sig.String()+" to A", func(t *testing.T) {
			t.Parallel()
			url := pgtest.Creator(t, pgtest.Database(t))
			d := startDemo(t, "--database-url", url, "--ttl", "1s")
			d.until("SIGSTOP")
			for _, pid := range importers(t, d.printed.String()) {
				d.signal(pid, sig)
			}
			if code, stderr := d.wait(); code != 1 || !strings.Contains(stderr, "act 1, a lease alone: importer A") {
				t.Errorf("exit code %d, stderr %q; want 1 and the act", code, stderr)
			}
			nothingLeft(t, url, d.printed.String())
		})
	}
}

func TestDemo_NeedsTheSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	oneLineWith(t, runProgram(t, "demo", "--database-url", url), 1, "gatepost migrate up")
	nothingLeft(t, url, "")
}

func TestDemo_RefusesACommandLineItCantUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--ttl", "10ms"},
		{"demo", "--ttl", "1h"},
		{"demo", "--records", "23"},
		{"demo", "orders.csv"},
		{"demo-importer", "--batch", "1", "--schema", "public"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			oneLineWith(t, runProgram(t, args...), 2)
		})
	}
}

// wantSums holds the last line of each act against what it has to be.
func wantSums(t *testing.T, printed string, want ...string) {
	t.Helper()
	got := regexp.MustCompile(`(?m)^records .*; rows in the table .*$`).FindAllString(printed, -1)
	if !slices.Equal(got, want) {
		t.Errorf("the acts came to\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// runningDemo is a demo that was started and is read line by line.
type runningDemo struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdout  io.ReadCloser
	lines   *bufio.Scanner
	stderr  bytes.Buffer
	printed strings.Builder
}

func startDemo(t *testing.T, args ...string) *runningDemo {
	t.Helper()
	d := &runningDemo{t: t, cmd: program(t, append([]string{"demo"}, args...)...)}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdout, d.lines, d.cmd.Stderr = stdout, bufio.NewScanner(stdout), &d.stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return d
}

// until reads on to a line of the time line with this text.
func (d *runningDemo) until(text string) {
	d.t.Helper()
	for d.lines.Scan() {
		d.printed.WriteString(d.lines.Text() + "\n")
		if line := d.lines.Text(); strings.Contains(line, text) && strings.Contains(line, " s  ") {
			return
		}
	}
	_, stderr := d.wait()
	d.t.Fatalf("it ended before %q: %s\n%s", text, stderr, d.printed.String())
}

// wait reads the rest and gives the exit code and what was said on stderr.
func (d *runningDemo) wait() (code int, stderr string) {
	for d.lines.Scan() {
		d.printed.WriteString(d.lines.Text() + "\n")
	}
	_ = d.cmd.Wait() // the exit code says it
	return d.cmd.ProcessState.ExitCode(), d.stderr.String()
}

func (d *runningDemo) signal(pid int, sig syscall.Signal) {
	d.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		d.t.Fatal(err)
	}
}

// nothingLeft fails when a demo left a process, a schema or a lease.
func nothingLeft(t *testing.T, url, printed string) {
	t.Helper()
	noProcess(t, printed)
	pool := pgtest.Connect(t, url)
	if got := text(t, pool, `SELECT count(*)::text FROM pg_namespace WHERE nspname LIKE 'gatepost\_demo%'`); got != "0" {
		t.Errorf("%s scratch schemas are left", got)
	}
	if count(t, pool, "gatepost.leases") > 0 {
		t.Error("a lease is left")
	}
}

// noProcess waits until no importer of the demo is there. One that was killed
// needs a moment to be gone.
func noProcess(t *testing.T, printed string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for len(importers(t, printed)) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("the processes %v are left", importers(t, printed))
		}
		<-time.After(2 * time.Millisecond) // polls a state
	}
}

// importers finds the processes of a demo by the schema in their command lines.
func importers(t *testing.T, printed string) (pids []int) {
	t.Helper()
	schema := regexp.MustCompile(`gatepost_demo_\w+`).FindString(printed)
	if schema == "" {
		return nil
	}
	for pid, line := range commandLines(t) {
		if strings.Contains(line, schema) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// commandLines are those of all processes, from /proc where there is one.
func commandLines(t *testing.T) map[int]string {
	t.Helper()
	all := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended meanwhile
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		all[pid] = string(line)
	}
	if len(files) > 0 {
		return all
	}
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		number, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		pid, _ := strconv.Atoi(number)
		all[pid] = args
	}
	return all
}
