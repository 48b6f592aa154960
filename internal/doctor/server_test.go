package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/jackc/pgx/v5"
)

// What the faulty server has, in the order in which it is told.
var faults = []string{
	"fsync weakens fsync", "fsync weakens full_page_writes", "prepared note max_prepared_transactions", "autovacuum note autovacuum",
}

func TestServer_SettingsThatLoseCommits(t *testing.T) {
	t.Parallel()
	if got := found(examine(t, faulty.database(t), patient())); !slices.Equal(got, faults) {
		t.Errorf("it found %q, want %q", got, faults)
	}
}

func TestServer_SettingsOfRolesAndDatabases(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db, name := cfg.Database, "Of "+roleName(url)
	role := `"` + name + `"`
	run(t, url, "CREATE ROLE "+role+" LOGIN SUPERUSER")
	for set, want := range map[string]string{
		"ALTER DATABASE " + db + " SET synchronous_commit = off":                              "synchronous-commit weakens database " + db,
		"ALTER ROLE " + role + " IN DATABASE " + db + " SET synchronous_commit = off":         "synchronous-commit weakens role " + name + " in database " + db,
		"ALTER DATABASE " + db + " SET synchronous_commit = local":                            "synchronous-commit note database " + db,
		"ALTER DATABASE " + db + " SET session_replication_role = replica":                    "replication-role weakens database " + db,
		"ALTER ROLE " + role + " IN DATABASE " + db + " SET session_replication_role = local": "replication-role weakens role " + name + " in database " + db,
		"ALTER ROLE " + role + " IN DATABASE " + db + " SET gatepost.fence = 'v1:secret'":     "preset weakens role " + name + " in database " + db,
	} {
		run(t, url, set)
		r := examine(t, url, patient())
		if got := found(r); !slices.Equal(got, []string{want}) {
			t.Errorf("after %s it found %q", set, got)
		}
		if strings.Contains(fmt.Sprint(r), "v1:secret") {
			t.Error("it shows a nonce")
		}
		heal(t, url, r)
	}
	// Of a role everywhere: other tests of this server see that too, so it is a server's
	// own. So is what the whole server has.
	if got := found(examine(t, url+"&options=-csynchronous_commit%3Doff", patient())); !slices.Equal(got, []string{"synchronous-commit weakens this connection"}) {
		t.Errorf("with an option in the URL it found %q", got)
	}
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("healed, it finds %q", got)
	}
}

func TestServer_SettingsOfTheServerAndOfRolesEverywhere(t *testing.T) {
	t.Parallel()
	own := &server{settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "off", "session_replication_role": "replica", "track_counts": "off",
	}}
	t.Cleanup(func() { _ = own.stop() })
	url := own.database(t)
	run(t, url, "CREATE ROLE app LOGIN", "ALTER ROLE app SET synchronous_commit = off", "ALTER ROLE ALL SET synchronous_commit = off")
	want := []string{
		// The session has what ALTER ROLE ALL says, which hides the server's own.
		"synchronous-commit weakens all roles", "synchronous-commit weakens role app",
		"replication-role weakens the server", "autovacuum note track_counts",
	}
	if got := found(examine(t, url, patient())); !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
	run(t, url, "ALTER ROLE ALL RESET synchronous_commit", "ALTER ROLE app RESET synchronous_commit")
	want[0], want = "synchronous-commit weakens the server", slices.Delete(want, 1, 2)
	url = own.database(t) // a pooler's sessions keep what they began with
	if got := found(examine(t, url, patient())); !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
}

func TestServer_Versions(t *testing.T) {
	t.Parallel()
	for major, want := range map[int]doctor.Severity{13: doctor.Weakens, 14: "", 18: "", 19: doctor.Note} {
		findings := doctor.JudgeVersion(major)
		if len(findings) > 1 || (want == "") != (len(findings) == 0) || want != "" && findings[0].Severity != want {
			t.Errorf("of PostgreSQL %d it says %+v", major, findings)
		}
	}
}

func TestClock_OfThisMachine(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	for _, shift := range []time.Duration{-time.Hour, time.Hour} {
		opts := patient().WithClock(func() time.Time { return time.Now().Add(shift) })
		r := examine(t, url, opts)
		if got := found(r); !slices.Equal(got, []string{"clock-difference note this machine's clock"}) {
			t.Fatalf("an hour off, it found %q", got)
		}
		if f := result(t, r, "clock-difference").Findings[0]; !strings.Contains(f.Text, " by 1 h") && !strings.Contains(f.Text, " by 59 min") {
			t.Errorf("an hour off, it said %q", f.Text)
		}
	}
	// An answer that takes long is no difference: the server's clock was read somewhere in
	// between.
	calls := 0
	slow := patient().WithClock(func() time.Time {
		calls++
		return time.Now().Add(time.Duration(calls-2) * 10 * time.Second)
	})
	if got := found(examine(t, url, slow)); len(got) != 0 {
		t.Errorf("with a slow answer it found %q", got)
	}
}
