package main

import (
	"encoding/json"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
)

func TestGuard_AddLsRemove(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	pool := pgtest.Connect(t, url)
	execute(t, pool, `CREATE TABLE accounts (id int); CREATE SCHEMA "My";
		CREATE TABLE "My"."Lines" (lease text, v int) PARTITION BY LIST (v); CREATE TABLE "My".one PARTITION OF "My"."Lines" FOR VALUES IN (1)`)
	want(t, gatepost(t, url, "guard", "ls"), 0, "No such table is guarded.")
	if r := gatepost(t, url, "guard", "ls", "--json"); r.stdout != "[]\n" {
		t.Errorf("ls --json of nothing printed %q", r.stdout)
	}
	want(t, gatepost(t, url, "guard", "add", "Accounts", "--lease", "accounts/close-month"), 0, "accounts is guarded by lease accounts/close-month\n")
	want(t, gatepost(t, url, "guard", "add", `"My"."Lines"`, "--lease-column", "lease"), 0, `"My"."Lines" is guarded by the lease in column lease`)
	execute(t, pool, `CREATE TABLE "My".two PARTITION OF "My"."Lines" FOR VALUES IN (2); ALTER TABLE accounts DISABLE TRIGGER USER`)
	equal(t, gatepost(t, url, "guard", "ls").stdout, `
TABLE            GUARDED BY                  OPEN
"My"."Lines"     the lease in column lease   "My".two unguarded
public.accounts  lease accounts/close-month  disabled
`)
	equal(t, gatepost(t, url, "guard", "ls", "accounts", "--json").stdout,
		`[{"schema":"public","name":"accounts","lease":"accounts/close-month","holes":[{"schema":"public","name":"accounts","problem":"disabled"}]}]`+"\n")
	want(t, gatepost(t, url, "guard", "add", `"My"."Lines"`, "--lease-column", "lease"), 0, "")
	var all []struct{ Holes []any }
	if err := json.Unmarshal([]byte(gatepost(t, url, "guard", "ls", `"Lines"`, "--json").stdout), &all); err != nil || len(all) != 1 || len(all[0].Holes) != 0 {
		t.Errorf("after adding it again: %+v, %v", all, err)
	}
	want(t, gatepost(t, url, "guard", "remove", "public.accounts", `"My"."Lines"`), 0, "public.accounts is not guarded any more\n\"My\".\"Lines\" is not guarded any more\n")
	want(t, gatepost(t, url, "guard", "remove", "accounts"), 0, "accounts was not guarded")
}

func TestGuard_ChangesAllTablesOrNone(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	execute(t, pool, `CREATE TABLE a (id int); CREATE VIEW v AS SELECT 1`)
	for _, c := range []struct {
		code int
		part string
		args []string
	}{
		{1, "is no table", []string{"add", "a", "v", "--lease", "x"}},
		{1, "gatepost: there is no such table in the schemas of search_path: nowhere; give its schema too, SCHEMA.TABLE\n", []string{"add", "a", "nowhere", "--lease", "x"}},
		{1, "gatepost: there is no such table: no.where\n", []string{"remove", "no.where"}},
		{1, "gatepost: a: public.a has no column v\n", []string{"add", "a", "--lease-column", "v"}},
		{1, "there is no such table in the schemas of search_path: nowhere", []string{"ls", "a", "nowhere"}},
		{0, "No such table is guarded.", []string{"ls", "a"}},
		{1, "string is not a valid identifier", []string{"add", "a", "b c", "--lease", "x"}},
		{2, "give one of --lease and --lease-column", []string{"add", "a"}},
		{2, "give one of --lease and --lease-column", []string{"add", "a", "--lease", "x", "--lease-column", "id"}},
		{2, "TABLE is missing", []string{"add", "--lease", "x"}},
		{2, "--wait is 0s", []string{"add", "a", "--lease", "x", "--wait", "0"}},
		{2, `unknown command "ad"`, []string{"ad", "a"}},
	} {
		want(t, gatepost(t, url, append([]string{"guard"}, c.args...)...), c.code, c.part)
	}
	want(t, gatepost(t, url, "guard", "ls"), 0, "No such table is guarded.")

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "INSERT INTO a VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	want(t, gatepost(t, url, "guard", "add", "a", "--lease", "x", "--wait", "50ms"), 1, "another session has held a lock on it for too long")
}

func TestMigrate_DownRefusesWhileATableIsGuarded(t *testing.T) {
	t.Parallel()
	url := pgtest.Owner(t, pgtest.Database(t))
	pool := pgtest.Connect(t, url)
	execute(t, pool, `CREATE TABLE a (id int)`)
	want(t, gatepost(t, url, "guard", "add", "a", "--lease", "x"), 0, "")
	want(t, gatepost(t, url, "migrate", "down"), 1, "public.a is guarded; take the guard off first, or use --force: gatepost guard remove public.a")
	want(t, gatepost(t, url, "migrate", "down", "--force"), 0, applied(0, -int(migrations.Latest())))
	execute(t, pool, `INSERT INTO a VALUES (1)`)
}
