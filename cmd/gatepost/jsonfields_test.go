package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgxpool"
)

// object is what a command prints with --json, the first one of a list. The program runs in
// another time zone than UTC.
func object(t *testing.T, url string, args ...string) map[string]any {
	t.Helper()
	cmd := program(t, url, append(args, "--json")...)
	cmd.Env = append(cmd.Env, "TZ=Asia/Kolkata")
	r := ended(t, cmd)
	var list []map[string]any
	text := strings.TrimSpace(r.stdout)
	if strings.HasPrefix(text, "{") {
		text = "[" + text + "]"
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 {
		t.Fatalf("%v printed %q, %q: %v", args, r.stdout, r.stderr, err)
	}
	return list[0]
}

// has checks the names that are there, and some of the values.
func has(t *testing.T, o map[string]any, names string, values map[string]any) {
	t.Helper()
	if got := strings.Join(slices.Sorted(maps.Keys(o)), " "); got != names {
		t.Errorf("it has\n%s, want\n%s", got, names)
	}
	for name, want := range values {
		if got, _ := json.Marshal(o[name]); string(got) != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// happened checks a moment against the database's, and that it is in UTC.
func happened(t *testing.T, pool *pgxpool.Pool, got any, sql string) {
	t.Helper()
	var want time.Time
	if err := pool.QueryRow(t.Context(), sql).Scan(&want); err != nil {
		t.Fatal(err)
	}
	text, _ := got.(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err != nil || !at.Equal(want) || !strings.HasSuffix(text, "Z") {
		t.Errorf("%s is %q, want %s in UTC", sql, text, want.UTC())
	}
}

// near checks a time in milliseconds.
func near(t *testing.T, got any, want time.Duration) {
	t.Helper()
	if ms, ok := got.(float64); !ok || (time.Duration(ms)*time.Millisecond-want).Abs() > time.Minute {
		t.Errorf("%v ms, want %s", got, want)
	}
}

const leaseFields = "acquired_at data expires_at held holder left_ms name renewed_at token transitions waiters"

// Scripts know these names, and what is behind them.
func TestJSON_OfALeaseHasEachField(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	values := map[string]any{
		"name": `"b/held"`, "held": "true", "holder": `"web-1"`, "token": `"1764476000000001"`, "transitions": "3", "waiters": "2", "data": `{"job":7}`,
	}
	for _, args := range [][]string{{"ls"}, {"show", "b/held"}} {
		o := object(t, url, args...)
		names := leaseFields
		if args[0] == "show" {
			names = strings.Replace(strings.Replace(names, "name ", "locked_by name ", 1), " waiters", " waiters waiting", 1)
			values["locked_by"] = "[]"
			if waiting, _ := o["waiting"].([]any); len(waiting) != 2 {
				t.Errorf("waiting are %v", waiting)
			}
		}
		has(t, o, names, values)
		near(t, o["left_ms"], 535*time.Second)
		for _, name := range []string{"acquired_at", "renewed_at", "expires_at"} {
			happened(t, pool, o[name], "SELECT "+name+" FROM gatepost.leases WHERE name = 'b/held'")
		}
	}
	// A reservation counts until it ends, and what a release left of one doesn't.
	for set, want := range map[string]bool{
		"'web-9', clock_timestamp() + interval '1 h'": true, "'web-9', clock_timestamp() - interval '1 s'": false, "NULL, clock_timestamp() + interval '1 h'": false,
	} {
		execute(t, pool, "UPDATE gatepost.leases SET (reserved_for, reserved_until) = ROW ("+set+") WHERE name = 'a/free'")
		o := object(t, url, "show", "a/free")
		reserved, ok := o["reserved"].(map[string]any)
		if ok != want || ok && reserved["for"] != "web-9" {
			t.Errorf("with %s it has reserved %v", set, o["reserved"])
		}
		if want {
			happened(t, pool, reserved["until"], "SELECT reserved_until FROM gatepost.leases WHERE name = 'a/free'")
		}
	}
}

func TestJSON_OfAReleaseHasEachField(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	args := []string{"release", "b/held", "--token", "1764476000000001"}
	o := object(t, url, append(args, "--reason", "it hangs")...)
	has(t, o, "at by holder locked_by name reason released role token", map[string]any{
		"name": `"b/held"`, "token": `"1764476000000001"`, "released": "true", "holder": `"web-1"`, "reason": `"it hangs"`, "locked_by": "[]",
	})
	happened(t, pool, o["at"], "SELECT expires_at FROM gatepost.leases WHERE name = 'b/held'")
	if by, _ := o["by"].(string); !strings.Contains(by, "@") {
		t.Errorf("it was released by %q", by)
	}
	has(t, object(t, url, args...), "at by locked_by name released token", map[string]any{"released": "false"})
}

const keyFields = "attempt body_size created_at done_at expired expires_at key_start left_ms operation scope state status"

func TestJSON_OfAKeyHasEachField(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := someKeys(t, url)
	of := func(name, key string) string {
		return "SELECT " + name + " FROM gatepost.idempotency_keys WHERE key LIKE '" + key + "%'"
	}
	execute(t, pool, `UPDATE gatepost.idempotency_keys SET codec = 'json' WHERE key LIKE 'done%'`)
	execute(t, pool, `INSERT INTO gatepost.idempotency_steps SELECT operation, scope, key, s, '\x0102', clock_timestamp() + n * interval '1 s'
		FROM gatepost.idempotency_keys, (VALUES ('z', 1), ('a', 2)) AS steps (s, n) WHERE key LIKE 'done%'`)
	done := map[string]any{
		"operation": `"payments.charge"`, "scope": `"acme"`, "key_start": `"done4444…"`, "state": `"done"`, "attempt": "3", "status": "201", "body_size": "3", "expired": "false",
	}
	o := object(t, url, "keys", "ls", "--state", "done")
	has(t, o, keyFields, done)
	near(t, o["left_ms"], 24*time.Hour)
	for _, name := range []string{"created_at", "done_at", "expires_at"} {
		happened(t, pool, o[name], of(name, "done"))
	}
	o = object(t, url, "keys", "show", "payments.charge", "acme", "done4444bbbb2222cccc")
	done["codec"], done["headers"], done["fingerprint_version"], done["fingerprint"] = `"json"`, "{}", "1", `"`+strings.Repeat("ab", 32)+`"`
	done["external_key"] = `"` + keyOf([]string{"payments.charge", "acme", "done4444bbbb2222cccc"}).ExternalKey() + `"`
	has(t, o, strings.NewReplacer("body_size ", "body_size codec ", "expires_at ", "expires_at external_key fingerprint fingerprint_version headers ",
		"attempt ", "attempt attempt_id ", " status", " status steps").Replace(keyFields), done)
	steps, _ := o["steps"].([]any)
	if len(steps) != 2 {
		t.Fatalf("steps are %v", steps)
	}
	for i, name := range []string{"z", "a"} { // as they ended
		step, _ := steps[i].(map[string]any)
		has(t, step, "done_at name size", map[string]any{"name": `"` + name + `"`, "size": "2"})
		happened(t, pool, step["done_at"], "SELECT done_at FROM gatepost.idempotency_steps WHERE step = '"+name+"'")
	}

	claimed := strings.NewReplacer(" done_at", "", "key_start ", "key_start lease_left_ms lease_until ", " status", "").Replace(keyFields)
	o = object(t, url, "keys", "ls", "--state", "running")
	has(t, o, claimed, map[string]any{"state": `"running"`, "body_size": "0"})
	near(t, o["lease_left_ms"], 30*time.Minute)
	happened(t, pool, o["lease_until"], of("lease_until", "live"))
	has(t, object(t, url, "keys", "ls", "--operation", "payments.charge", "--scope", "bolt", "--state", "done"), keyFields, map[string]any{"expired": "true"})
	o = object(t, url, "keys", "forget", "payments.charge", "bolt", "lost") // whose key was given, and need not be in a log
	has(t, o, strings.Replace(claimed, "key_start", "forgotten key_start", 1), map[string]any{"forgotten": "true", "key_start": `"lo…"`, "state": `"in doubt"`})
}

func TestJSON_OfGCHasEachField(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := garbage(t, url)
	for _, dry := range []bool{true, false} {
		args := []string{"gc"}
		if dry {
			args = append(args, "--dry-run")
		}
		o := object(t, url, args...)
		has(t, o, "dry_run keys leases waiters", nil)
		keys, _ := o["keys"].(map[string]any)
		values := map[string]any{"due": "3", "left": "0", "removed": "3"}
		if dry {
			values = map[string]any{"due": "3", "left": "3", "removed": "0"}
		}
		has(t, keys, "due left oldest_ms removed", values)
		near(t, keys["oldest_ms"], 26*time.Hour+90*time.Minute)
		if got := counts(t, pool); o["dry_run"] != dry || dry && got != [3]int{4, 3, 2} {
			t.Errorf("dry run %v: it left %v", o["dry_run"], got)
		}
	}
}
