package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
)

// durable is a database on a server of the test's own, that loses nothing: that of the
// other tests runs with fsync off.
func durable(t *testing.T) string {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if err := migrations.Up(t.Context(), pgtest.Connect(t, server.URL(""))); err != nil {
		t.Fatal(err)
	}
	return server.URL("")
}

func TestDoctor_SaysOnlyWhatIsWrong(t *testing.T) {
	t.Parallel()
	url := durable(t)
	r := gatepost(t, url, "doctor", "--timeout", "1m")
	lines := strings.Split(r.stdout, "\n")
	if r.code != 0 || len(lines) != 4 || !strings.HasSuffix(lines[0], ", database postgres, as postgres") || !strings.HasSuffix(lines[2], " checks: nothing weakens a promise.") {
		t.Errorf("of a healthy database it printed %q, %q, exit code %d", r.stdout, r.stderr, r.code)
	}
	want(t, gatepost(t, url, "doctor", "--timeout", "1m", "--all"), 0, "\nOK       token-index: the unique index on a lease's token\n")
	want(t, gatepost(t, url, "doctor", "--timeout", "1m", "--all"), 0, "\nSKIPPED  privilege: the privileges of the role of --role (no role was named)\n")

	pool := pgtest.Connect(t, url)
	execute(t, pool, "ALTER TABLE gatepost.leases SET (fillfactor = 90)")
	want(t, gatepost(t, url, "doctor", "--timeout", "1m"), 0, "nothing weakens a promise, 1 note.")
	execute(t, pool, "ALTER TABLE gatepost.leases SET UNLOGGED")
	r = gatepost(t, url, "doctor", "--timeout", "1m")
	if r.code != 1 || r.stderr != "" {
		t.Errorf("it printed %q, exit code %d", r.stderr, r.code)
	}
	equal(t, r.stdout[strings.Index(r.stdout, "\n\n")+2:strings.LastIndex(r.stdout, "\n\n")+1], `
WEAKENS  unlogged: gatepost.leases
         The table is UNLOGGED: a crash empties it, and a standby doesn't have
         it.
           ALTER TABLE gatepost.leases SET LOGGED;

NOTE     fillfactor: gatepost.leases
         The fillfactor is 90, not 45: updates find no room in their page, and
         have to write every index.
           ALTER TABLE gatepost.leases SET (fillfactor = 45);
`)
	if !strings.HasSuffix(r.stdout, " checks: 1 thing weakens a promise, 1 note.\n") {
		t.Errorf("it ends with %q", r.stdout)
	}

	execute(t, pool, "CREATE ROLE app")
	want(t, gatepost(t, url, "doctor", "--timeout", "1m", "--role", "app"), 1, "GRANT SELECT, INSERT, DELETE ON gatepost.idempotency_steps TO \"app\";")
}

func TestDoctor_JSONHasAllChecks(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	execute(t, pgtest.Connect(t, pgtest.Owner(t, url)), "ALTER TABLE gatepost.leases SET UNLOGGED")
	r := gatepost(t, url, "doctor", "--timeout", "1m", "--json")
	if r.code != 1 || strings.Contains(r.stdout, "null") {
		t.Errorf("it printed %q, exit code %d", r.stdout, r.code)
	}
	var report struct {
		ServerVersion string `json:"server_version"`
		Database      string
		Role          string
		Standby       *bool
		Weakens       int
		Notes         int
		Unseen        int
		Failed        int
		Checks        []struct {
			Check    string
			LooksAt  string `json:"looks_at"`
			Skipped  string
			Findings []struct {
				Severity, Object, Finding string
				Remedy                    []struct{ Kind, Text string }
			}
			Unseen []struct {
				What   string
				Grants []string
			}
		}
	}
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%q: %v", r.stdout, err)
	}
	if report.ServerVersion == "" || report.Database == "" || report.Role == "" || report.Standby == nil || report.Weakens < 3 {
		t.Errorf("it printed %+v", report)
	}
	seen := map[string]bool{}
	for _, c := range report.Checks {
		if seen[c.Check] || c.LooksAt == "" {
			t.Errorf("%q comes twice, or looks at nothing", c.Check)
		}
		seen[c.Check] = true
		if c.Check != "unlogged" {
			continue
		}
		if f := c.Findings[0]; len(c.Findings) != 1 || f.Severity != "weakens" || f.Object != "gatepost.leases" || f.Finding == "" ||
			len(f.Remedy) != 1 || f.Remedy[0].Kind != "sql" || f.Remedy[0].Text != "ALTER TABLE gatepost.leases SET LOGGED;" {
			t.Errorf("unlogged is %+v", c)
		}
	}
	if len(seen) < 30 {
		t.Errorf("it has only %d checks", len(seen))
	}
}

func TestDoctor_BadUse(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	want(t, gatepost(t, url, "doctor", "now"), 2, "takes no argument")
	want(t, gatepost(t, url, "doctor", "--timeout", "0s"), 2, "at least 1ms")
	want(t, gatepost(t, url, "doctor", "--fence-only"), 2, "give --role too")
	want(t, gatepost(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=2", "doctor"), 1, "no connection to the database")
	want(t, gatepost(t, url, "doctor"), 1, "Gatepost's tables are not in this database.\n           gatepost migrate up\n")
}

// What is prose fits, however narrow; what is to be copied is not broken, and nothing
// reaches the terminal that it would act on.
func TestDoctor_LinesFit(t *testing.T) {
	t.Parallel()
	report := &doctor.Report{Version: "15.18", Database: strings.Repeat("d", 90), Role: "r", Results: []doctor.Result{
		{Check: "lapsed", Looks: "leases", Findings: []doctor.Finding{{
			Severity: doctor.Weakens, Object: "lease \x1b[2J" + strings.Repeat("é", 150), Text: strings.Repeat("some words and more 日本語 ", 20),
			Remedy: []string{"-- " + strings.Repeat("a remedy ", 30) + "\x1b[2J"},
		}}},
		{Check: "horizon", Looks: "t", Unseen: []doctor.Unseen{{Text: "transactions", Grants: []string{"GRANT a TO b;"}}}},
		{Check: "slots", Looks: "t", Unseen: []doctor.Unseen{{Text: "transactions", Grants: []string{"GRANT a TO b;"}}}},
		{Check: "slot", Looks: "s", Failed: "of something"},
	}}
	for _, width := range []int{12, 40, 80} {
		d := drawing{screen: cli.Screen{}, width: width}
		d.report(report, true)
		for _, line := range d.lines {
			if cli.Width(line) > width && !strings.HasPrefix(line, strings.Repeat(" ", indent+2)) || strings.ContainsAny(line, "\x1b") {
				t.Errorf("at %d columns there is a line of %d: %q", width, cli.Width(line), line)
			}
		}
		text := strings.Join(d.lines, "\n")
		for _, part := range []string{"WEAKENS  ", "UNSEEN   ", "FAILED   ", strings.Repeat("a remedy ", 30)} {
			if !strings.Contains(text, part) {
				t.Errorf("at %d columns there is no %q in\n%s", width, part, text)
			}
		}
		if width == 80 && strings.Count(text, "UNSEEN   horizon, slots\n") != 1 {
			t.Errorf("what one grant shows is not told together:\n%s", text)
		}
	}
}
