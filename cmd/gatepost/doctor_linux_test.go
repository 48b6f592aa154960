package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestDoctor_HasColoursOnATerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	execute(t, pgtest.Connect(t, pgtest.Owner(t, url)), "ALTER TABLE gatepost.leases SET UNLOGGED")
	term := newTerminal(t, 50, 60)
	cmd := program(t, url, "doctor", "--timeout", "1m")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=")
	term.start(cmd)
	term.shows("WEAKENS  unlogged: gatepost.leases\n         The table is UNLOGGED: a crash empties\n         it, and a standby doesn't have it.\n")
	term.shows("promise")
	if !strings.Contains(term.bytes(), "\x1b[31mWEAKENS\x1b[0m") {
		t.Error("it has no colours")
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Error(err)
	}
}
