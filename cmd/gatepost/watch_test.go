package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// program is gatepost on a database, not started yet.
func program(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), envMain+"=1", "DATABASE_URL="+url)
	return cmd
}

// lines are those that a program prints.
func lines(t *testing.T, cmd *exec.Cmd) func() string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			read <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range read { //nolint:revive // until it has ended
		}
		_ = cmd.Wait()
	})
	return func() string {
		t.Helper()
		select {
		case line := <-read:
			return line
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was printed within 20 s")
			return ""
		}
	}
}

func TestWatch_PrintsALineForEachChange(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	next := lines(t, program(t, url, "watch", "--interval", "100ms"))
	for _, step := range []struct{ sql, want string }{
		{"", "held      b/held  by web-1  token 1764476000000001"},
		{"UPDATE gatepost.leases SET nonce = NULL, holder = NULL, expires_at = clock_timestamp() WHERE name = 'b/held'", "released  b/held  by web-1  token 1764476000000001"},
		{"UPDATE gatepost.leases SET token = 1764476000000002, nonce = gen_random_uuid(), holder = 'web-3', expires_at = clock_timestamp() + interval '1 h' WHERE name = 'b/held'", "acquired  b/held  by web-3  token 1764476000000002"},
		{"UPDATE gatepost.leases SET expires_at = clock_timestamp() WHERE name = 'b/held'", "expired   b/held  by web-3  token 1764476000000002"},
		{"UPDATE gatepost.leases SET token = 14, transitions = 9 WHERE name = 'a/free'", "released  a/free  token 14"},
	} {
		if step.sql != "" {
			execute(t, pool, step.sql)
		}
		if line := next(); !strings.HasSuffix(line, "  "+step.want) {
			t.Errorf("it printed %q, want %q", line, step.want)
		}
	}
}

func TestWatch_PrintsChangesOfOneNameAsJSON(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	next := lines(t, program(t, url, "watch", "later", "--json", "--interval", "100ms"))
	put(t, pool, leaseRow{name: "other", holder: "h", token: 1, left: time.Hour}, leaseRow{name: "later", holder: "h", token: 7, left: time.Hour})
	var c struct{ Event, Name, Token string }
	if err := json.Unmarshal([]byte(next()), &c); err != nil || c.Name != "later" || c.Token != "7" || (c.Event != "acquired" && c.Event != "held") {
		t.Errorf("it printed %+v (%v)", c, err)
	}
}

func TestWatch_SaysThatTheDatabaseIsGoneAndLooksOn(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	want(t, gatepost(t, "postgres://127.0.0.1:1/none", "watch"), 1, "no connection to the database")
	want(t, gatepost(t, url, "watch", "--interval", "1ms"), 2, "at least 100ms")
	want(t, gatepost(t, url, "watch", "b/held", "--prefix", "b"), 2, "--all and --prefix are for all leases, not for one NAME; usage: gatepost watch [NAME]")
	pool := leases(t, url)
	next := lines(t, program(t, url, "watch", "--interval", "100ms"))
	next()
	execute(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	execute(t, pool, "UPDATE gatepost.leases SET nonce = NULL, holder = NULL, expires_at = clock_timestamp() WHERE name = 'b/held'")
	if line := next(); !strings.Contains(line, "released  b/held") {
		t.Errorf("it printed %q", line)
	}
}
