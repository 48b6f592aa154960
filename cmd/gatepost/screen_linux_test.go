package main

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

func long(t *testing.T, url string) {
	t.Helper()
	put(
		t, pgtest.Connect(t, url),
		leaseRow{name: "importer/2025-11-30/customers-and-orders.csv", holder: "worker-2.eu-west-1.internal/4711/ab12cd34", token: 1764476000000002, age: time.Hour, left: 535 * time.Second},
		leaseRow{name: "reports/daily", holder: "worker-1.eu-west-1.internal/17/ab12cd34", token: 1764476000000001, age: time.Hour, left: 535 * time.Second},
	)
}

func TestLs_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	long(t, url)
	for columns, wanted := range map[int]string{
		90: `
NAME                HOLDER                         TOKEN  TERM  LEFT      WAITERS  SINCE
importer/2025-11-…  worker-2.eu-west-…  1764476000000002     3  in 8 min        0  1 h ago
reports/daily       worker-1.eu-west-…  1764476000000001     3  in 8 min        0  1 h ago`,
		70: `
NAME                  HOLDER                           TOKEN  LEFT
importer/2025-11-30…  worker-2.eu-west-1.…  1764476000000002  in 8 min
reports/daily         worker-1.eu-west-1.…  1764476000000001  in 8 min`,
	} {
		term := newTerminal(t, columns, 10)
		cmd := program(t, url, "ls")
		cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
		term.start(cmd)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		term.shows("reports/daily")
		equal(t, term.text(), wanted)
	}
}

func TestKeysLs_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	putKeys(
		t, pgtest.Connect(t, url),
		keyRow{"POST /v1/accounts/{account}/charges", "tenant-0f1e2d3c-4b5a-6978", "aaaa1111bbbb2222cccc", 3, 0, -25 * time.Hour},
		keyRow{"POST /v1/accounts/{account}/refunds", "tenant-0f1e2d3c-4b5a-6978", "bbbb1111bbbb2222cccc", 1, -time.Hour, 25*time.Hour - 30*time.Second},
	)
	term := newTerminal(t, 80, 10)
	cmd := program(t, url, "keys", "ls")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	term.start(cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	term.shows("bbbb1111")
	equal(t, term.text(), `
OPERATION            SCOPE                 KEY        STATE      EXPIRES
POST /v1/accounts/…  tenant-0f1e2d3c-4b5…  aaaa1111…  tombstone  expired 1 d ago
POST /v1/accounts/…  tenant-0f1e2d3c-4b5…  bbbb1111…  in doubt   in 1 d`)
}

func TestLs_HasColoursOnlyOnATerminalThatWantsThem(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	long(t, url)
	for _, c := range []struct {
		colours bool
		env     []string
	}{
		{true, []string{"TERM=xterm", "NO_COLOR="}},
		{false, []string{"TERM=xterm", "NO_COLOR=1"}},
		{false, []string{"TERM=dumb", "NO_COLOR="}},
	} {
		term := newTerminal(t, 90, 10)
		cmd := program(t, url, "ls")
		cmd.Env = append(cmd.Env, c.env...)
		term.start(cmd)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		term.shows("reports/daily")
		if got := strings.Contains(term.bytes(), "\x1b["); got != c.colours {
			t.Errorf("with %q there are colours: %v", c.env, got)
		}
	}
	if r := gatepost(t, url, "ls"); strings.Contains(r.stdout, "\x1b") || !strings.Contains(r.stdout, "importer/2025-11-30/customers-and-orders.csv") {
		t.Errorf("into a pipe it printed %q", r.stdout)
	}
}

func TestWatch_RedrawsInPlaceUntilCtrlC(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	term := newTerminal(t, 90, 12)
	cmd := program(t, url, "watch", "--interval", "100ms")
	shell := exec.CommandContext(t.Context(), "sh", "-c", `trap : INT; printf 'before\n'; "$@"; printf 'code %d\n' $?`, "sh")
	shell.Args = append(shell.Args, cmd.Args...)
	shell.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=")
	term.start(shell)
	term.shows("b/held  web-1   1764476000000001     3  in 8 min        2  3 min ago")
	put(t, pool, leaseRow{name: "a/new", holder: "h", token: 7, left: 535 * time.Second})
	term.shows("a/new   h")
	if !strings.Contains(term.bytes(), "\x1b[32min 8 min") {
		t.Error("it has no colours")
	}
	execute(t, pool, "DELETE FROM gatepost.leases WHERE name = 'a/new'")
	deadline := time.Now().Add(20 * time.Second)
	for strings.Contains(term.text(), "a/new") && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
	for n := range 30 {
		put(t, pool, leaseRow{name: "z/" + string(rune('a'+n)), holder: "h", token: 7, left: time.Hour})
	}
	term.shows("… and 22 more") // of 12 lines one is the cursor's
	if text := term.text(); strings.Count(text, "NAME") != 1 {
		t.Errorf("it scrolled:\n%s", text)
	}
	execute(t, pool, "DELETE FROM gatepost.leases WHERE name LIKE 'z/%'")
	for strings.Contains(term.text(), "z/") && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
	term.write("\x03")
	term.shows("code 0")
	equal(t, term.text()+"\n", `
NAME    HOLDER             TOKEN  TERM  LEFT      WAITERS  SINCE
b/held  web-1   1764476000000001     3  in 8 min        2  3 min ago
code 0
`)
	if state := shell.Wait(); state != nil {
		t.Error(state)
	}
}

func TestWatch_DrawsOneName(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	term := newTerminal(t, 60, 20)
	cmd := program(t, url, "watch", "soon", "--interval", "100ms")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	term.start(cmd)
	term.shows(`"soon" was never acquired, so far.`)
	put(t, pool, leaseRow{name: "soon", holder: strings.Repeat("h", 100), token: 7, left: time.Hour, data: `{"k": "v"}`})
	term.shows("HOLDER    " + strings.Repeat("h", 50) + "\n            " + strings.Repeat("h", 48) + "\n            hh\nTOKEN     7\n")
	term.shows(`            "k": "v"`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestWatch_DrawsThatItIsOldAndGoesOn(t *testing.T) {
	t.Parallel()
	url, proxy := throughProxy(t)
	name := pgtest.Name(t)
	pool := pgtest.Pool(t)
	put(t, pool, leaseRow{name: name, holder: "h", token: 7, left: time.Hour})
	term := newTerminal(t, 60, 20)
	cmd := program(t, url, "watch", name, "--interval", "100ms")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	term.start(cmd)
	term.shows("TOKEN     7\n")
	proxy.SetStall(true)
	term.shows("As of ")
	term.shows("no answer in time")
	execute(t, pool, "UPDATE gatepost.leases SET token = 8 WHERE name = $1", name)
	proxy.SetStall(false)
	term.shows("TOKEN     8\n")
	if text := term.text(); strings.Contains(text, "As of ") || !strings.HasPrefix(text, "NAME ") {
		t.Errorf("it still shows\n%s", text)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestShow_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	client, err := pglock.New(pgtest.Connect(t, url+"&application_name=importer-of-all-prices"), pglock.Config{Holder: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) })
	lease, err := client.TryAcquire(t.Context(), "fenced", &pglock.AcquireOptions{Data: []byte(`{"note": "` + strings.Repeat("a long story ", 9) + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	beginFenced(t, lease)
	term := newTerminal(t, 80, 30)
	cmd := program(t, url, "show", "fenced")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	term.start(cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	term.shows("\nLOCKED BY backend ")
	term.shows(", idle in transaction for ")
	term.shows("\n              story ") // it goes on under the first line
	if wide := regexp.MustCompile(`.{81}`).FindString(strings.ReplaceAll(term.bytes(), "\r", "")); wide != "" {
		t.Errorf("the terminal has to break %q", wide)
	}
}

func TestDemo_HasColoursOnATerminal(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, 80, 100)
	cmd := program(t, pgtest.Creator(t, pgtest.Database(t)), "demo", "--ttl", "500ms", "--records", "24")
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=")
	term.start(cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	term.shows("What to do next")
	for _, part := range []string{"\x1b[31mACCEPTED, although the\x1b[0m", "\x1b[32mREFUSED, FencedError:\x1b[0m", "\x1b[33mIS STOPPED (SIGSTOP)\x1b[0m"} {
		if !strings.Contains(term.bytes(), part) {
			t.Errorf("%q is not to be seen", part)
		}
	}
}
