//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// The demo itself is tested by examples/fileimport, which has the same one; this is
// what is different here.

func TestDemo_ComesOutAsPromised(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	r := gatepost(t, url, "demo", "--ttl", "1s")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d, %s; it printed\n%s", r.code, r.stderr, r.stdout)
	}
	got := regexp.MustCompile(`(?m)^records .*; rows in the table .*$`).FindAllString(r.stdout, -1)
	wanted := []string{
		"records 12,000; rows in the table 23,500; duplicates 11,500; refused writes 0",
		"records 12,000; rows in the table 12,000; duplicates 0; refused writes 1",
		"records 12,000; rows in the table 12,000; duplicates 0; refused writes 0",
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("the acts came to %q", got)
	}
	if !strings.Contains(r.stdout, "What to do next: \"gatepost migrate up\"") {
		t.Errorf("it doesn't say what to do next:\n%s", r.stdout)
	}
	for line := range strings.Lines(r.stdout) {
		if len(line) > 81 || strings.ContainsAny(line, "\x1b\t") {
			t.Errorf("a line is not plain text of 80 columns: %q", line)
		}
	}
	noDemoLeft(t, url)
}

func TestDemo_StartsATemporaryServer(t *testing.T) {
	t.Parallel()
	r := gatepost(t, "", "demo", "--ttl", "700ms", "--records", "24")
	want(t, r, 0, "records 24; rows in the table 47; duplicates 23; refused writes 0")
	want(t, r, 0, "starting a temporary PostgreSQL")
}

func TestDemo_LeavesNothingOnCtrlC(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	cmd := program(t, url, "demo", "--ttl", "5m")
	next := lines(t, cmd)
	for line := next(); !strings.Contains(line, " s  IS STOPPED (SIGSTOP)"); line = next() {
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	noDemoLeft(t, url)
}

func TestDemo_SaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	want(t, gatepost(t, pgtest.EmptyDatabase(t), "demo"), 1, "run: gatepost migrate up")
	want(t, gatepost(t, "", "demo", "--ttl", "1ms"), 2, "from 300ms to 5m")
	want(t, gatepost(t, "", "demo", "orders.csv"), 2, "takes no argument")
	want(t, gatepost(t, "", "demo-importer", "--schema", "public"), 2, "use gatepost demo")
}

// noDemoLeft fails when a demo left a schema or a lease.
func noDemoLeft(t *testing.T, url string) {
	t.Helper()
	var schemas, leases int
	err := pgtest.Connect(t, url).QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'gatepost\_demo%'), (SELECT count(*) FROM gatepost.leases)`).Scan(&schemas, &leases)
	if err != nil || schemas > 0 || leases > 0 {
		t.Errorf("%d schemas and %d leases are left (%v)", schemas, leases, err)
	}
}
