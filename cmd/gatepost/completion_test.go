package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
)

// completions are what a shell offers for the last word.
func completions(t *testing.T, url string, words ...string) []string {
	t.Helper()
	r := gatepost(t, url, append([]string{"__completeNoDesc"}, words...)...)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != 0 || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("%q printed %q, %q", words, r.stdout, r.stderr)
	}
	return lines[:len(lines)-1]
}

func TestCompletion_OffersWhatIsInTheDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	pool := leases(t, url)
	put(t, pool, leaseRow{name: "b/\x1b[2J", holder: "h", token: 1, left: time.Hour})
	someKeys(t, url)
	execute(t, pool, `CREATE TABLE public.orders (id int); CREATE TABLE public.others (id int); CREATE SCHEMA s; CREATE TABLE s."Odd" (id int)`)
	want(t, gatepost(t, url, "guard", "add", "orders", "--lease", "b/held"), 0, "")
	for _, c := range []struct{ words, want []string }{
		{[]string{"run", "b"}, []string{"b/held"}},
		{[]string{"run", "b/held", ""}, []string{"--"}},
		{[]string{"run", "b/held", "--", "l"}, nil},
		{[]string{"run", "--ttl", ""}, nil},
		{[]string{"migrate", "grants", ""}, nil},
		{[]string{"ls", ""}, nil},
		{[]string{"release", "b"}, []string{"b/held"}},
		{[]string{"guard", "add", "o"}, []string{"orders", "others"}},
		{[]string{"guard", "add", "orders", "s."}, []string{`s."Odd"`}},
		{[]string{"guard", "add", "orders", "--lease", "b"}, []string{"b/held"}},
		{[]string{"guard", "remove", ""}, []string{"public.orders"}},
		{[]string{"guard", "ls", "pub"}, []string{"public.orders"}},
		{[]string{"show", ""}, []string{"a/free", "b/held", "c/lapsed"}},
		{[]string{"watch", "b"}, []string{"b/held"}},
		{[]string{"show", "a/free", ""}, nil},
		{[]string{"ls", "--prefix", "c"}, []string{"c/lapsed"}},
		{[]string{"keys", "show", "pay"}, []string{"payments.charge", "payments.refund"}},
		{[]string{"keys", "forget", "payments.charge", ""}, []string{"acme", "bolt"}},
		{[]string{"keys", "forget", "payments.charge", "acme", ""}, nil}, // no keys
		{[]string{"keys", "ls", "--operation", "mail"}, []string{"mail.send"}},
		{[]string{"keys", "ls", "--operation", "payments.charge", "--scope", "b"}, []string{"bolt"}},
		{[]string{"keys", "ls", "--state", ""}, []string{"running", "in-doubt", "done", "tombstone", "released"}},
	} {
		if got := completions(t, url, c.words...); !slices.Equal(got, c.want) {
			t.Errorf("%q completes to %q, want %q", c.words, got, c.want)
		}
	}
	want(t, gatepost(t, url, "__complete", "show", "b"), 0, "b/held\tweb-1, in 8 min\n")
	want(t, gatepost(t, url, "__complete", "run", "b/held", "--", ""), 0, ":0\n") // a command of the shell's
	for _, words := range [][]string{{"ls", ""}, {"migrate", "grants", ""}, {"run", "--ttl", ""}, {"run", "b/held", ""}, {"gc", "--limit", ""}, {"completion", "bash", ""}} {
		if r := gatepost(t, url, append([]string{"__completeNoDesc"}, words...)...); !strings.HasSuffix(r.stdout, ":4\n") {
			t.Errorf("%q completes with files: %q", words, r.stdout)
		}
	}
	want(t, gatepost(t, url, "__complete", "man", ""), 0, ":16\n") // directories
}

// A database that doesn't answer, or isn't there, offers nothing, and soon.
func TestCompletion_IsSilentWithoutADatabase(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, url := range []string{
		"postgres://" + silent.Addr().String() + "/none?sslmode=disable",
		"postgres://127.0.0.1:1/none",
		"postgres://[::1",
		pgtest.EmptyDatabase(t),
	} {
		cmd := program(t, url, "__complete", "show", "")
		late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		begun := time.Now()
		r := ended(t, cmd)
		late.Stop()
		if r.code != 0 || r.stdout != ":4\n" || strings.Contains(r.stderr, "rror") {
			t.Errorf("with %s it printed %q and %q, exit code %d", url, r.stdout, r.stderr, r.code)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("with %s it took %s", url, took)
		}
	}
}

func TestCompletion_HasAScriptForEachShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		want(t, gatepost(t, "", "completion", shell), 0, "__complete")
	}
	want(t, gatepost(t, "", "completion", "ksh"), 2, `unknown command "ksh" for "gatepost completion"; did you mean bash`)
	script := gatepost(t, "", "completion", "bash").stdout
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash can't read its script: %v: %s", err, out)
	}
}

func TestMan_HasAPageForEachCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	want(t, gatepost(t, "", "man", dir), 0, "pages are in "+dir)
	for _, name := range []string{"gatepost", "gatepost-ls", "gatepost-keys", "gatepost-keys-forget", "gatepost-migrate-up"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{".TH \"", ".SH \"NAME\"\n" + roff(name) + ` \- `, ".SH \"SYNOPSIS\"\n", ".SH \"DESCRIPTION\"\n", `\fB\-\-database\-url\fR`} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s has no %q:\n%s", name, part, page)
			}
		}
	}
	want(t, gatepost(t, "", "man"), 0, `.TH "GATEPOST" 1`)
	want(t, gatepost(t, "", "man", filepath.Join(dir, "no", "such")), 1, "no such file")
	want(t, gatepost(t, "", "man", dir, "more"), 2, "is one argument too many; usage: gatepost man [DIR]")
}

func TestRoff_TakesNoTextForARequest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		".TH x":      `\&.TH x`,
		"'so /etc/x": `\(aqso /etc/x`,
		`a\nb`:       `a\enb`,
		"a\n.b":      "a\n\\&.b",
		"--all":      `\-\-all`,
	} {
		if got := roff(text); got != want {
			t.Errorf("roff(%q) is %q, want %q", text, got, want)
		}
	}
}

// What a newcomer reads fits a terminal, as long as nobody writes tables that are wider.
func TestHelp_FitsEightyColumns(t *testing.T) {
	t.Parallel()
	var all [][]string
	var tables strings.Builder
	for _, cmd := range documented(rootCommand()) {
		all = append(all, []string{cmd.Name()})
		tables.WriteString(cmd.Long + "\n")
		if cmd.Name() == "completion" {
			continue // the scripts' help is cobra's own
		}
		for _, sub := range documented(cmd) {
			all = append(all, []string{cmd.Name(), sub.Name()})
		}
	}
	for _, words := range append(all, nil) {
		r := gatepost(t, "", append(words, "--help")...)
		if r.code != 0 || !strings.Contains(r.stdout, "Usage:\n") {
			t.Errorf("%q printed %q, exit code %d", words, r.stdout, r.code)
		}
		if len(words) == 1 && strings.Contains(r.stdout, "Available Commands:") && strings.Contains(r.stdout, "gatepost "+words[0]+" [flags]\n") {
			t.Errorf("%q says that it runs without a subcommand", words)
		}
		for line := range strings.Lines(r.stdout) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && !strings.Contains(tables.String(), line) {
				t.Errorf("%q has a line of %d columns: %q", words, n, line)
			}
		}
	}
}
