package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// leaseRow puts a name into the database as it may be found there.
type leaseRow struct {
	name, holder string // no holder: free
	token        int64
	age, left    time.Duration // since it was acquired, until it expires
	data         string
}

func put(t *testing.T, pool *pgxpool.Pool, rows ...leaseRow) {
	t.Helper()
	for _, r := range rows {
		if r.data == "" {
			r.data = "null"
		}
		_, err := pool.Exec(t.Context(), `
			INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions, data)
			VALUES ($1, $2, CASE WHEN $3 <> '' THEN gen_random_uuid() END, nullif($3, ''), clock_timestamp() - $4::interval,
				clock_timestamp(), clock_timestamp() + $5::interval, 3, nullif($6::jsonb, 'null'))`,
			r.name, r.token, r.holder, r.age, r.left, r.data)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// waits puts clients into the queue of a name.
func waits(t *testing.T, pool *pgxpool.Pool, name string, holders ...string) {
	t.Helper()
	for i, holder := range holders {
		_, err := pool.Exec(t.Context(), `
			INSERT INTO gatepost.waiters (client, waiter, name, holder, since, expires_at)
			VALUES ($1, 1, $2, $1, clock_timestamp() - interval '3 hours 90 s' + $3 * interval '1 hour', clock_timestamp() + interval '1 hour')`,
			holder, name, i)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func leases(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Connect(t, url)
	put(t, pool,
		leaseRow{name: "a/free", token: 11, age: time.Hour, left: -30 * time.Minute},
		leaseRow{name: "b/held", holder: "web-1", token: 1764476000000001, age: 200 * time.Second, left: 535 * time.Second, data: `{"job": 7}`},
		leaseRow{name: "c/lapsed", holder: "web-2", token: 13, age: 3 * time.Hour, left: -485 * time.Second},
	)
	waits(t, pool, "b/held", "web-3", "web-4")
	return pool
}

func TestLs_ListsWhatIsHeld(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	want(t, gatepost(t, url, "ls"), 0, "Nothing is held.")
	if r := gatepost(t, url, "ls", "--json"); r.stdout != "[]\n" {
		t.Errorf("ls --json of nothing printed %q", r.stdout)
	}
	leases(t, url)
	equal(t, gatepost(t, url, "ls").stdout, `
NAME    HOLDER             TOKEN  TERM  LEFT      WAITERS  SINCE
b/held  web-1   1764476000000001     3  in 8 min        2  3 min ago
`)
	equal(t, gatepost(t, url, "ls", "--all").stdout, `
NAME      HOLDER             TOKEN  TERM  LEFT               WAITERS  SINCE
a/free                          11     3  free                     0  30 min ago
b/held    web-1   1764476000000001     3  in 8 min                 2  3 min ago
c/lapsed  web-2                 13     3  expired 8 min ago        0  3 h ago
`)
	if r := gatepost(t, url, "ls", "--all", "--prefix", "c"); strings.Count(r.stdout, "\n") != 2 || !strings.Contains(r.stdout, "c/lapsed") {
		t.Errorf("ls --prefix c printed %q", r.stdout)
	}
}

// equal compares output with a text that begins on a line of its own.
func equal(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("it printed\n%s\nwant\n%s", got, want)
	}
}

func TestLs_JSONLosesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	put(t, pgtest.Connect(t, url), leaseRow{name: "n", holder: "h", token: 9007199254740993, age: time.Minute, left: time.Minute, data: `{"big": 9007199254740993}`})
	var all []struct {
		Name, Holder, Token string
		Held                bool
		AcquiredAt          time.Time `json:"acquired_at"`
		LeftMS              int64     `json:"left_ms"`
		Waiters             int
		Data                json.RawMessage
	}
	r := gatepost(t, url, "ls", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		t.Fatalf("%q: %v", r.stdout, err)
	}
	l := all[0]
	if l.Name != "n" || l.Holder != "h" || !l.Held || l.Token != "9007199254740993" || string(l.Data) != `{"big":9007199254740993}` {
		t.Errorf("it printed %+v", l)
	}
	if l.LeftMS < 50000 || l.LeftMS > 60000 || time.Since(l.AcquiredAt) > 80*time.Second {
		t.Errorf("it printed the times %+v", l)
	}
}

func TestLs_ReadsPastAPage(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
		SELECT 'n' || n, n, gen_random_uuid(), 'h', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour', 1
		FROM generate_series(1, 2 * $1::int + 1) AS n`, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(gatepost(t, url, "ls").stdout, "\n"); lines != 2*pageSize+2 {
		t.Errorf("it printed %d lines", lines)
	}
}

func TestLs_PrintsHostileNamesHarmlessly(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	put(t, pool, leaseRow{name: "\x1b[2J\nname", holder: "\x1b]0;x\a", token: 1, left: time.Hour, data: `{"k": "\u001b[2J"}`})
	for _, args := range [][]string{{"ls"}, {"show", "\x1b[2J\nname"}, {"ls", "--json"}} {
		r := gatepost(t, url, args...)
		if r.code != 0 || strings.ContainsAny(r.stdout, "\x1b\a") {
			t.Errorf("%q printed %q, exit code %d", args, r.stdout, r.code)
		}
	}
}

func TestShow_TellsAllAboutAName(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := leases(t, url)
	want(t, gatepost(t, url, "show", ""), 2, "invalid lease name: it is empty")
	want(t, gatepost(t, url, "watch", strings.Repeat("n", 256)), 2, "invalid lease name: it has 256 bytes")
	want(t, gatepost(t, url, "show", "nowhere"), 1, `"nowhere" was never acquired`)
	want(t, gatepost(t, url, "show", "b/hold"), 1, "; did you mean b/held?")
	want(t, gatepost(t, url, "show"), 2, "NAME is missing; usage: gatepost show NAME; for example: gatepost show reports/daily")

	r := gatepost(t, url, "show", "b/held")
	for _, part := range []string{
		"NAME      b/held\n", "STATE     held; expires in 8 min ", "HOLDER    web-1\n", "TOKEN     1764476000000001\n", "TERM      3\n",
		", 3 min 2", "WAITERS   2\n          web-3, for 3 h 1 min\n          web-4, for 2 h 1 min\n", "DATA      {\n            \"job\": 7\n          }\n",
	} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("show printed\n%s\nwithout %q", r.stdout, part)
		}
	}
	want(t, gatepost(t, url, "show", "a/free"), 0, "STATE     free for 30 min")
	want(t, gatepost(t, url, "show", "c/lapsed"), 0, "STATE     expired 8 min ")

	execute(t, pool, `UPDATE gatepost.leases SET reserved_for = 'web-9', reserved_until = clock_timestamp() + interval '535 s' WHERE name = 'a/free'`)
	want(t, gatepost(t, url, "show", "a/free"), 0, "STATE     kept for web-9 for 8 min ")
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestShow_FindsTheTransactionsBehindTheFence(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	put(t, pool, leaseRow{name: "other", holder: "h", token: 1, left: time.Hour})
	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) })
	lease, err := client.TryAcquire(t.Context(), "fenced", nil)
	if err != nil {
		t.Fatal(err)
	}
	type shown struct {
		LockedBy []struct {
			PID         uint32
			Application string
			State       string
		} `json:"locked_by"`
	}
	look := func(name string) (s shown) {
		t.Helper()
		r := gatepost(t, url, "show", name, "--json")
		if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
			t.Fatalf("%q: %v", r.stdout, err)
		}
		return s
	}
	if s := look("fenced"); len(s.LockedBy) != 0 {
		t.Errorf("without a fence it shows %+v", s)
	}
	// One is in the row itself, two are a set that the row has the number of.
	var pids []uint32
	for n := range 3 {
		tx := beginFenced(t, lease)
		pids = append(pids, tx)
		s := look("fenced")
		if len(s.LockedBy) != n+1 || s.LockedBy[0].State != "idle in transaction" {
			t.Fatalf("with %d fences it shows %+v", n+1, s)
		}
		for _, l := range s.LockedBy {
			if !strings.Contains(fmt.Sprint(pids), fmt.Sprint(l.PID)) {
				t.Errorf("it shows %+v, the fences are of %v", s, pids)
			}
		}
	}
	if s := look("other"); len(s.LockedBy) != 0 {
		t.Errorf("another name shows %+v", s)
	}
	want(t, gatepost(t, url, "show", "fenced"), 0, "idle in transaction for ")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, gatepost(t, url, "show", "fenced"), 0, "STATE     free for ")
}

// beginFenced opens a fenced transaction until the test ends, and returns its backend.
func beginFenced(t *testing.T, lease *pglock.Lease) (pid uint32) {
	t.Helper()
	tx, err := lease.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return pgtest.Backend(t, tx)
}
