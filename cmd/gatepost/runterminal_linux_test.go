package main

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"golang.org/x/sys/unix"
)

// shell is an interactive one on a terminal; $GP is gatepost run with a lease of its own.
func shell(t *testing.T) *terminal {
	t.Helper()
	term := newTerminal(t, 100, 30)
	gp := program(t, pgtest.URL(t), "run", pgtest.Name(t))
	cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
	cmd.Env = append(gp.Env, "GP="+strings.Join(gp.Args, " "), "PS1=prompt$ ", "TERM=dumb", "HISTFILE=")
	term.start(cmd)
	term.shows("prompt$")
	return term
}

func TestRun_TheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, line string }{
		{"a job of its own", `$GP -- sh -c 'echo up-$((1+1)); read a; echo "got=$a"'; echo "code=$?"`},
		{"in a pipeline", `$GP -- sh -c 'echo up-$((1+1)); read a; echo "got=$a"' | cat; echo "code=$?"`},
		{"in a script", `sh -c '$GP -- sh -c "echo up-\$((1+1)); read a; echo got=\$a"; echo "code=$?"'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			term := shell(t)
			term.write(c.line + "\r")
			term.shows("up-2")
			term.write("hello\r")
			term.shows("got=hello")
			term.shows("code=0")
			term.write("echo after-$((1+1))\r") // the shell has the terminal again
			term.shows("after-2")
		})
	}
}

func TestRun_TellsPeopleThatItWaits(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	acquired(t, clientOn(t, pgtest.Pool(t), pglock.Config{Holder: "web-1"}), name)
	term := newTerminal(t, 200, 30)
	cmd := program(t, pgtest.URL(t), "run", name, "--", "true")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	term.start(cmd)
	term.shows("gatepost: waiting: lease ")
	term.shows(" is held by web-1 (token ")
	term.shows(" unless renewed")
	term.write("\x03")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("after Ctrl-C: %s", cmd.ProcessState)
	}
}

func TestRun_CtrlCReachesTheCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, line, shows string }{
		{"a job of its own", `$GP -- sh -c 'echo up-$((1+1)); sleep 60'; echo "code=$?"`, "code=130"},
		{"in a script", `sh -c 'trap "echo script-got-it" INT; $GP -- sh -c "echo up-\$((1+1)); sleep 60"; echo "code=$?"'`, "script-got-it\ncode=130"},
		{"one that wants to know", `$GP -- sh -c 'trap "echo thanks; exit 5" INT; echo up-$((1+1)); sleep 60'; echo "code=$?"`, "thanks\ncode=5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			term := shell(t)
			term.write(c.line + "\r")
			term.shows("up-2")
			var pressed time.Time
			await(t, c.shows, func() bool {
				// Again, slowly: a shell that is about to start something can miss one.
				if time.Since(pressed) > 2*time.Second {
					term.write("\x03")
					pressed = time.Now()
				}
				return strings.Contains(term.text(), c.shows)
			})
		})
	}
}

func TestRun_StopsAndGoesOnAsAShellsJob(t *testing.T) {
	t.Parallel()
	term := shell(t)
	shells := foreground(term)
	term.write(`$GP --ttl 1m -- sh -c 'echo "pid=$$."; read a; echo "got=$a"'` + "\r")
	term.shows("\npid=")
	commands := int(number(t, term.text(), `\npid=(\d+)\.`))
	for range 3 {
		await(t, "the command has the terminal", func() bool { return foreground(term) == commands && stateOf(commands) != "T" })
		term.write("\x1a")
		await(t, "the shell has the terminal", func() bool { return foreground(term) == shells && stateOf(commands) == "T" })
		term.write("fg\r")
	}
	await(t, "the command has the terminal", func() bool { return foreground(term) == commands && stateOf(commands) != "T" })
	term.write("hello\r")
	term.shows("got=hello")
	term.write("echo after-$((1+1))\r")
	term.shows("after-2")
}

// foreground is the process group that has the terminal.
func foreground(term *terminal) int {
	pgid, err := unix.IoctlGetInt(int(term.master.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

func number(t *testing.T, text, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in %q", pattern, text)
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRun_PutsTheTerminalBackInOrder(t *testing.T) {
	t.Parallel()
	term := shell(t)
	term.write(`$GP -- sh -c 'stty -echo raw; kill -KILL $$'; echo "code=$?"; stty -a` + "\r")
	term.shows("code=137")
	term.shows(" icanon")
	term.shows(" echo ")
}

func TestRun_StopsAndGoesOnWithoutATerminal(t *testing.T) {
	t.Parallel()
	b := startBeating(t, pgtest.URL(t), []string{"--ttl", "1m"}, nil)
	l, _ := readLife(b.file)
	signalTo(t, b.cmd.Process.Pid, syscall.SIGTSTP)
	for _, pid := range []int{int(l.pid), b.cmd.Process.Pid} {
		await(t, "a stop", func() bool { return stateOf(pid) == "T" })
	}
	signalTo(t, b.cmd.Process.Pid, syscall.SIGCONT)
	stopped, _ := readLife(b.file)
	await(t, "life after the stop", func() bool { l, _ := readLife(b.file); return l.at > stopped.at })
	signalTo(t, b.cmd.Process.Pid, syscall.SIGTERM)
	if r := b.wait(); r.code != 143 || r.stderr != "" {
		t.Error(r)
	}
}
