//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// runs runs "gatepost run NAME" on the shared database.
func runs(t *testing.T, name string, args ...string) result {
	t.Helper()
	return gatepost(t, pgtest.URL(t), append([]string{"run", name}, args...)...)
}

func TestRun_KeepsTheCommandsExitCode(t *testing.T) {
	t.Parallel()
	for script, code := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 76": 76, "kill -TERM $$": 143, "kill -KILL $$": 137,
	} {
		r := runs(t, pgtest.Name(t), "--", "sh", "-c", script)
		if r.code != code || r.stdout != "" || r.stderr != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and silence", script, r.code, r.stdout, r.stderr, code)
		}
	}
}

// What there is to say is no part of the command's output, and changes nothing of its code.
func TestRun_KeepsTheCodeOfACommandThatLeavesProcesses(t *testing.T) {
	t.Parallel()
	r := runs(t, pgtest.Name(t), "--", "sh", "-c", "sleep 60 >&- 2>&- & echo out; exit 3")
	if r.code != 3 || r.stdout != "out\n" || !strings.HasPrefix(r.stderr, "gatepost: the command left a process behind") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

func TestRun_ACommandThatCannotRunTakesNoLease(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	want(t, runs(t, name, "--", "no-such-command-here"), 127, "gatepost: can't run no-such-command-here: executable file not found in $PATH\n")
	want(t, runs(t, name, "--", "/no/such\x1bfile"), 127, `gatepost: can't run /no/such\x1bfile: no such file or directory`+"\n")
	want(t, runs(t, name, "--", "/etc/passwd"), 126, "gatepost: can't run /etc/passwd: permission denied\n")
	want(t, gatepost(t, pgtest.URL(t), "show", name), 1, "never acquired")
	// One that the system refuses only when it starts.
	file := t.TempDir() + "/command"
	write(t, file, "#!/no/such/interpreter\n")
	want(t, runs(t, name, "--", file), 127, "gatepost: can't run "+file+": no such file")
	want(t, gatepost(t, pgtest.URL(t), "show", name), 0, "STATE     free for")
	// And one that shells run.
	write(t, file, `echo "a script without a first line, of $#: $1|$2"; exit 5`)
	want(t, runs(t, name, "--", file, "a b", ""), 5, "a script without a first line, of 2: a b|\n")
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil { //nolint:gosec // it is to be executed
		t.Fatal(err)
	}
}

func TestRun_BadUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part string
		args []string
	}{
		{"NAME and COMMAND are missing; usage: gatepost run NAME [flags] -- COMMAND [ARG...]; for example: gatepost run reports/daily -- ./report.sh --all", nil},
		{"COMMAND is missing; usage: gatepost run NAME [flags] -- COMMAND [ARG...]", []string{"n"}},
		{"COMMAND is missing", []string{"n", "--"}},
		{"NAME and COMMAND are missing", []string{"--"}},
		{"the command comes behind --: gatepost run n -- echo hi", []string{"n", "echo", "hi"}},
		{"the command comes behind --: gatepost run n --no-wait --ttl 9s -- ls -l '/a b' 'it'\\''s' ''", []string{"--ttl", "9s", "n", "--no-wait", "ls", "-l", "/a b", "it's", ""}},
		{"the command comes behind --: gatepost run n -- echo -- hi", []string{"n", "echo", "--", "hi"}},
		{"the command comes behind --: gatepost run n -- echo hi", []string{"--", "n", "echo", "hi"}},
		{"gatepost run n --database-url ... -- echo hi", []string{"n", "--database-url", "postgres://u:secret@h/d", "echo", "hi"}},
		{"--ttl is 500ms", []string{"n", "--ttl", "500ms", "--", "true"}},
		{"--ttl is 169h0m0s; it must be at most 168h", []string{"n", "--ttl", "169h", "--", "true"}},
		{"exclude each other", []string{"--no-wait", "n", "--wait", "1s", "--", "true"}},
		{"can't be negative", []string{"n", "--wait=-1s", "--", "true"}},
		{"at most a third of --ttl", []string{"n", "--ttl", "3s", "--grace", "2s", "--", "true"}},
		{"--holder must be at most 255 bytes of UTF-8 without NUL", []string{"n", "--holder", strings.Repeat("h", 256), "--", "true"}},
		{"unknown flag: --nope", []string{"n", "--nope", "--", "true"}},
		{`--ttl can't be "soon": a time is a number with its unit`, []string{"n", "--ttl", "soon", "--", "true"}},
		{"invalid lease name", []string{"", "--", "true"}},
	} {
		r := gatepost(t, pgtest.URL(t), append([]string{"run"}, c.args...)...)
		want(t, r, 2, c.part)
		if strings.Contains(r.stderr, "secret") {
			t.Errorf("it gives a password away: %q", r.stderr)
		}
	}
	want(t, gatepost(t, "postgres://127.0.0.1:1/none", "run", "n", "--", "true"), 1, "no connection to the database")
	want(t, gatepost(t, "", "run", "n", "--help"), 0, "gatepost run NAME [flags] -- COMMAND")
}

func TestRun_TakesFlagsUpToTheCommandOnly(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--ttl", "9s", "NAME", "--no-wait", "--", "sh", "-c", "echo $0 $1 $2", "--ttl", "--", "--help"},
		{"NAME", "--ttl=9s", "--", "sh", "-c", "echo $0 $1 $2", "--ttl", "--", "--help"},
		{"--", "NAME", "--", "sh", "-c", "echo $0 $1 $2", "--ttl", "--", "--help"},
	} {
		for i, arg := range args {
			if arg == "NAME" {
				args[i] = pgtest.Name(t)
			}
		}
		want(t, gatepost(t, pgtest.URL(t), append([]string{"run"}, args...)...), 0, "--ttl -- --help\n")
	}
}

func TestRun_TheCommandHasTheRunsFilesAndAnEnvironmentOfItsOwn(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	read, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, pgtest.URL(t), "run", name, "--", "sh", "-c",
		`read line; echo "in: $line"; echo err >&2; echo three >&3; echo "$GATEPOST_LEASE $GATEPOST_TOKEN $GATEPOST_SEQUENCER $OWN"`)
	cmd.Env = append(cmd.Env, "OWN=kept", "GATEPOST_TOKEN=of-an-outer-run")
	cmd.Stdin = strings.NewReader("hello\n")
	cmd.ExtraFiles = []*os.File{written}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
	written.Close()
	three, err := io.ReadAll(read)
	if err != nil || string(three) != "three\n" || stderr.String() != "err\n" {
		t.Errorf("file 3 got %q (%v), standard error %q", three, err, stderr.String())
	}
	lines := strings.Split(stdout.String(), "\n")
	if lines[0] != "in: hello" {
		t.Errorf("it printed %q", lines)
	}
	env := strings.Fields(lines[1])
	seq, err := pglock.ParseSequencer(env[2])
	if err != nil || env[0] != name || seq.Name() != name || env[1] != tokenText(seq.Token()) || env[3] != "kept" {
		t.Errorf("the environment was %q, %v", env, err)
	}
}

func TestRun_ItsSequencerFencesUntilTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	r := runs(t, name, append([]string{"--holder", "the-run"}, command(t, "fence")...)...)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "fenced "+name+" ") || !strings.HasSuffix(r.stdout, " the-run\n") {
		t.Fatalf("exit code %d, it printed %q, %q", r.code, r.stdout, r.stderr)
	}
	seq := runs(t, name, "--", "sh", "-c", "echo $GATEPOST_SEQUENCER").stdout
	cmd := program(t, pgtest.URL(t), command(t, "fence")[2:]...)
	cmd.Env = append(cmd.Env, "GATEPOST_SEQUENCER="+strings.TrimSpace(seq))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "fenced off") {
		t.Errorf("after the run its sequencer is good still: %q, %v", out, err)
	}
}

// started is gatepost, running.
type started struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func startRun(t *testing.T, url, name string, args ...string) *started {
	t.Helper()
	s := &started{t: t, cmd: program(t, url, append([]string{"run", name}, args...)...)}
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	return s
}

func (s *started) wait() result {
	s.t.Helper()
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return result{s.stdout.String(), s.stderr.String(), s.cmd.ProcessState.ExitCode()}
}

// waitingRun starts a run that waits for its lease, and returns when it does.
func waitingRun(t *testing.T, name string, command ...string) *started {
	t.Helper()
	s := startRun(t, pgtest.URL(t), name, append([]string{"--"}, command...)...)
	pool := pgtest.Pool(t)
	await(t, "a waiter of "+name, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM gatepost.waiters WHERE name = $1", name).Scan(&waits)
		return err == nil && waits
	})
	return s
}

func signalTo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// Whoever reads from the command learns when it closes its output, and not only when
// the run ends.
func TestRun_HoldsNoEndOfTheCommandsPipes(t *testing.T) {
	t.Parallel()
	cmd := program(t, pgtest.URL(t), "run", pgtest.Name(t), "--", "sh", "-c", "echo all; exec >&-; exec <&-; sleep 60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = read
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	if text, err := io.ReadAll(out); err != nil || string(text) != "all\n" {
		t.Errorf("it printed %q, %v", text, err)
	}
	await(t, "a pipe without a reader", func() bool { _, err := written.WriteString("x"); return errors.Is(err, syscall.EPIPE) })
	written.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
}
