package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
)

// envMain makes the test binary be gatepost itself.
const envMain = "GATEPOST_TEST_MAIN"

func TestMain(m *testing.M) {
	// A program with the race detector sleeps for a second before it ends.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	if len(os.Args) > 1 && os.Args[1] == puppetName {
		puppet(os.Args[2:])
	}
	if os.Getenv(envMain) != "" {
		main()
	}
	pgtest.Main(m)
}

type result struct {
	stdout, stderr string
	code           int
}

// gatepost runs the program on a database.
func gatepost(t *testing.T, url string, args ...string) result {
	t.Helper()
	return ended(t, program(t, url, args...))
}

// ended runs the program to its end.
func ended(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func want(t *testing.T, r result, code int, part string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout+r.stderr, part) {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %d and %q", r.code, r.stdout, r.stderr, code, part)
	}
	if strings.Count(r.stderr, "\n") > 1 {
		t.Errorf("an error of more than one line: %q", r.stderr)
	}
}

func TestMigrate_UpStatusDown(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	all := int(migrations.Latest())
	want(t, gatepost(t, url, "migrate", "status"), 1, "run: gatepost migrate up")
	want(t, gatepost(t, url, "migrate", "up"), 0, applied(all, all))
	want(t, gatepost(t, url, "migrate", "up"), 0, applied(all, 0))
	want(t, gatepost(t, url, "migrate", "status"), 0, "00001_leases.sql")

	var status []migrations.MigrationStatus
	r := gatepost(t, url, "migrate", "status", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &status); err != nil || len(status) != all || !status[all-1].Applied {
		t.Errorf("status --json printed %q (%v)", r.stdout, err)
	}
	execute(t, pgtest.Connect(t, url), "DELETE FROM gatepost.schema_migrations WHERE version_id = $1", all)
	r = gatepost(t, url, "migrate", "status")
	want(t, r, 1, fmt.Sprintf("1 of %d migrations are missing; run: gatepost migrate up", all))
	execute(t, pgtest.Connect(t, url), "INSERT INTO gatepost.schema_migrations (version_id, is_applied) VALUES ($1, true)", all)
	want(t, gatepost(t, "", "migrate", "down", "--database-url", url), 0, applied(0, -all))
}

// A holder that is gone is no reason to keep the tables.
func TestMigrate_DownMindsNoLeaseThatLapsed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	put(t, pgtest.Connect(t, pgtest.Owner(t, url)), leaseRow{name: "lapsed", holder: "web-1", token: 1, age: time.Hour, left: -time.Minute})
	want(t, gatepost(t, pgtest.Owner(t, url), "migrate", "down"), 0, applied(0, -int(migrations.Latest())))
}

// What there is none of is told beside the output, where a script would take it for a row.
func TestLists_OfNothingPrintNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	for _, list := range []string{"ls", "ls --all", "keys ls", "guard ls"} {
		r := gatepost(t, url, strings.Fields(list)...)
		if r.code != 0 || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", list, r.code, r.stdout, r.stderr)
		}
	}
}

func TestMigrate_DownRefusesWhileALeaseIsHeld(t *testing.T) {
	t.Parallel()
	url := pgtest.Owner(t, pgtest.Database(t))
	client, err := pglock.New(pgtest.Connect(t, url), pglock.Config{Holder: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) })
	lease, err := client.TryAcquire(t.Context(), "busy", nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, gatepost(t, url, "migrate", "down"), 1, "a lease is held, by web-1; stop its holder first, or use --force")
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("the refused down harmed the lease: %v", err)
	}
	want(t, gatepost(t, url, "migrate", "down", "--force"), 0, applied(0, -int(migrations.Latest())))
}

// applied is what migrate says at its end.
func applied(n, change int) string {
	return fmt.Sprintf("%d of %d migrations are applied (%+d)", n, migrations.Latest(), change)
}

func TestMigrate_SQLNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	r := gatepost(t, "postgres://127.0.0.1:1/none", "migrate", "sql")
	want(t, r, 0, "CREATE SCHEMA IF NOT EXISTS gatepost;")
	if strings.Contains(r.stdout, "DROP TABLE") || strings.Contains(r.stdout, "+goose") {
		t.Error("it prints the Down part or annotations")
	}
}

func TestCommandLine_BadUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		part string
		args []string
	}{
		{2, `unknown command "migrat"`, []string{"migrat"}},
		{2, `unknown command "sideways" for "gatepost migrate"; there are down, grants, sql, status, up`, []string{"migrate", "sideways"}},
		{2, "unknown flag", []string{"migrate", "up", "--nope"}},
		{2, "unknown flag: --prefx; did you mean --prefix?", []string{"ls", "--prefx", "a"}},
		{2, "; did you mean watch?", []string{"wathc"}},
		{2, `up takes no argument, but got "now"`, []string{"migrate", "up", "now"}},
		{2, "", []string{"migrate", "up", "--database-url", "postgres://[::1"}},
		{1, "no connection to the database", []string{"migrate", "up"}},
		{2, `"a\xff" is not text in UTF-8`, []string{"show", "a\xff"}},
		{2, `--prefix "\xff" is not text in UTF-8`, []string{"ls", "--prefix", "\xff"}},
		{2, `--operation "\xff" is not text in UTF-8`, []string{"keys", "ls", "--operation", "\xff"}},
		{0, "Usage:", []string{"--help"}},
	} {
		want(t, gatepost(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=2", c.args...), c.code, c.part)
	}
}

// The commands that README.md gives for a database of one's own.
func TestReadme_MigrateCommandsWork(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- ci:migrate -->\n```sh\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README.md has no migrate commands")
	}
	url := pgtest.EmptyDatabase(t)
	for line := range strings.Lines(string(block[1])) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/gatepost ")
		if !ok {
			t.Fatalf("%q runs something else", line)
		}
		words := strings.Fields(strings.ReplaceAll(args, `"$DATABASE_URL"`, url))
		want(t, gatepost(t, "", words...), 0, "")
	}
}
