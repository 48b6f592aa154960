package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// keyRow puts a key into the database as it may be found there.
type keyRow struct {
	operation, scope, key string
	state                 int
	lease, left           time.Duration // until the claim lapses, until the record expires
}

func putKeys(t *testing.T, pool *pgxpool.Pool, rows ...keyRow) {
	t.Helper()
	for _, r := range rows {
		execute(t, pool, `
			INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no,
				lease_until, status, body, body_len, created_at, done_at, expires_at)
			SELECT $1, $2, $3, $4::smallint, decode(repeat('ab', 32), 'hex'), 1, gen_random_uuid(), 3,
				CASE WHEN $4::smallint = 1 THEN clock_timestamp() + $5::interval END,
				CASE WHEN $4::smallint IN (2, 3) THEN 201 END, CASE WHEN $4::smallint = 2 THEN '\x00ff0a'::bytea END, CASE WHEN $4::smallint = 2 THEN 3 WHEN $4::smallint = 3 THEN 5000000 END,
				clock_timestamp() - interval '3 min 30 s', CASE WHEN $4::smallint IN (2, 3) THEN clock_timestamp() - interval '90 s' END, clock_timestamp() + $6::interval`,
			r.operation, r.scope, r.key, r.state, r.lease, r.left)
	}
}

// someKeys are of each state.
func someKeys(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Connect(t, url)
	day := 24*time.Hour - 30*time.Second
	putKeys(t, pool,
		keyRow{"mail.send", "acme", "aaaa1111bbbb2222cccc", 4, 0, day},
		keyRow{"payments.charge", "acme", "done4444bbbb2222cccc", 2, 0, day},
		keyRow{"payments.charge", "acme", "live4444bbbb2222cccc", 1, 30*time.Minute + 30*time.Second, day},
		keyRow{"payments.charge", "bolt", "lost", 1, -5*time.Minute - 30*time.Second, day},
		keyRow{"payments.charge", "bolt", "old44444bbbb2222cccc", 2, 0, -5*time.Minute - 30*time.Second},
		keyRow{"payments.refund", "acme", "tomb4444bbbb2222cccc", 3, 0, day},
	)
	return pool
}

func TestKeysLs_ListsKeysWithoutGivingThemAway(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	want(t, gatepost(t, url, "keys", "ls"), 0, "There are no such keys.")
	equal(t, gatepost(t, url, "keys", "ls", "--json").stdout, "[]\n")
	someKeys(t, url)
	equal(t, gatepost(t, url, "keys", "ls").stdout, `
OPERATION        SCOPE  KEY        STATE      ATTEMPT  AGE    EXPIRES
mail.send        acme   aaaa1111…  released         3  3 min  in 23 h
payments.charge  acme   done4444…  done             3  3 min  in 23 h
payments.charge  acme   live4444…  running          3  3 min  in 23 h
payments.charge  bolt   lo…        in doubt         3  3 min  in 23 h
payments.charge  bolt   old44444…  done             3  3 min  expired 5 min ago
payments.refund  acme   tomb4444…  tombstone        3  3 min  in 23 h
`)
	if r := gatepost(t, url, "keys", "ls", "--full"); !strings.Contains(r.stdout, "live4444bbbb2222cccc  running") {
		t.Errorf("--full printed %q", r.stdout)
	}
}

func TestKeysLs_Filters(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	someKeys(t, url)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{"aaaa1111", "done4444", "live4444", "lo", "old44444", "tomb4444"}},
		{"--operation payments.charge", []string{"done4444", "live4444", "lo", "old44444"}},
		{"--operation payments.charge --scope bolt", []string{"lo", "old44444"}},
		{"--scope acme", []string{"aaaa1111", "done4444", "live4444", "tomb4444"}},
		{"--state in-doubt", []string{"lo"}},
		{"--state done --scope acme", []string{"done4444"}},
		{"--state running --operation mail.send", nil},
		{"--scope acme --limit 2", []string{"aaaa1111", "done4444"}},
		{"--operation payments", nil},
	} {
		var all []keyJSON
		r := gatepost(t, url, append([]string{"keys", "ls", "--json"}, strings.Fields(c.args)...)...)
		if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
			t.Fatalf("%s: %q: %v", c.args, r.stdout, err)
		}
		var got []string
		for _, k := range all {
			got = append(got, strings.TrimSuffix(k.KeyStart, "…"))
			if k.Key != "" {
				t.Errorf("%s gives the key %q away", c.args, k.Key)
			}
		}
		if strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s printed %v, want %v", c.args, got, c.want)
		}
		if strings.Contains(c.args, "--limit") != strings.Contains(r.stderr, "There are more than these 2") {
			t.Errorf("%s said %q", c.args, r.stderr)
		}
	}
	want(t, gatepost(t, url, "keys", "ls", "--state", "stuck"), 2, "use running, in-doubt, done, tombstone or released")
	want(t, gatepost(t, url, "keys", "ls", "--limit", "-1"), 2, "--limit is -1")
}

// manyKeys are 2 operations of 2 scopes with n keys each; the last of all is in doubt.
func manyKeys(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	execute(t, pool, `
		INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, lease_until, created_at, done_at, expires_at)
		SELECT o, s, lpad(n::text, 10, '0'), CASE WHEN last THEN 1 ELSE 2 END, decode(repeat('ab', 32), 'hex'), 1, gen_random_uuid(), 1,
			CASE WHEN last THEN clock_timestamp() END, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day'
		FROM generate_series(1, $1::int) AS n
		CROSS JOIN (VALUES ('a'), ('b')) AS os (o)
		CROSS JOIN (VALUES ('x'), ('y')) AS ss (s)
		CROSS JOIN LATERAL (SELECT o = 'b' AND s = 'y' AND n = $1) AS l (last)`, n)
}

func TestKeysLs_ReadsPastItsPages(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	manyKeys(t, pgtest.Connect(t, url), pageSize+234)
	for args, lines := range map[string]int{
		"":              4*(pageSize+234) + 1,
		"--scope y":     2*(pageSize+234) + 1,
		"--operation a": 2*(pageSize+234) + 1,
		"--state done":  4 * (pageSize + 234), // all but one
	} {
		r := gatepost(t, url, append([]string{"keys", "ls", "--limit", "0"}, strings.Fields(args)...)...)
		if got := strings.Count(r.stdout, "\n"); got != lines || strings.Count(r.stdout, "OPERATION") != 1 {
			t.Errorf("%q printed %d lines, want %d", args, got, lines)
		}
	}
	if r := gatepost(t, url, "keys", "ls", "--state", "in-doubt"); strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("the one key in doubt printed %q", r.stdout)
	}
}

// A scope is looked for in each operation, however many there are.
func TestKeysLs_FindsAScopeBehindManyOperations(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	execute(t, pgtest.Connect(t, url), `
		INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, body_len, created_at, done_at, expires_at)
		SELECT 'o' || lpad(n::text, 4, '0'), CASE WHEN n = 250 THEN 'last' ELSE 's' END, 'k', 2, decode(repeat('ab', 32), 'hex'), 1, gen_random_uuid(), 1, 0, now(), now(), now() + interval '1 h'
		FROM generate_series(1, 250) AS n`)
	for scope, lines := range map[string]int{"last": 2, "s": 250} {
		if r := gatepost(t, url, "keys", "ls", "--limit", "0", "--scope", scope); strings.Count(r.stdout, "\n") != lines {
			t.Errorf("of scope %s it printed %d lines, want %d", scope, strings.Count(r.stdout, "\n"), lines)
		}
	}
}

// What a page reads doesn't grow with the table: counted in rows, not in time, which only
// an owner may, and only sessions that end tell.
func TestKeys_ReadByThePrimaryKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	manyKeys(t, pool, 20_000)
	execute(t, pool, "VACUUM ANALYZE gatepost.idempotency_keys")
	execute(t, pool, "SELECT pg_stat_reset()")
	for _, f := range []operator.KeyFilter{{}, {Operation: "b"}, {Operation: "b", Scope: "y"}, {Scope: "y"}} {
		for _, err := range operator.Keys(t.Context(), pool, f) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	scans, read := keysRead(t, pool)
	if scans != 0 || read == 0 || read > 2000 {
		t.Errorf("four lists of one key made %d scans of the table and read %d rows", scans, read)
	}
}

// A rare state is looked for in one scan of the table, which is many times faster than
// row after row by the index.
func TestKeys_OfARareStateReadTheTableOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	const n = 5000
	manyKeys(t, pool, n)
	execute(t, pool, "VACUUM ANALYZE gatepost.idempotency_keys")
	execute(t, pool, "SELECT pg_stat_reset()")
	found := 0
	for _, err := range operator.Keys(t.Context(), pool, operator.KeyFilter{State: operator.KeyInDoubt}) {
		if err != nil {
			t.Fatal(err)
		}
		found++
	}
	if scans, read := keysRead(t, pool); found != 1 || scans == 0 || read != 4*n {
		t.Errorf("%d keys were found in %d scans of the table that read %d rows, want 1 in a scan of the %d", found, scans, read, 4*n)
	}
}

// keysRead says how often the keys were scanned since pg_stat_reset, and how many were read.
func keysRead(t *testing.T, pool *pgxpool.Pool) (scans, read int64) {
	t.Helper()
	pool.Reset() // a session's counts are there when it has ended
	for deadline := time.Now().Add(20 * time.Second); read == 0 && time.Now().Before(deadline); {
		err := pool.QueryRow(t.Context(), `
			SELECT seq_scan, seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'gatepost.idempotency_keys'::regclass`).Scan(&scans, &read)
		if err != nil {
			t.Fatal(err)
		}
	}
	return scans, read
}

func TestKeysShow_TellsAllAboutAKey(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := someKeys(t, url)
	execute(t, pool, `UPDATE gatepost.idempotency_keys SET headers = '{"Content-Type": ["text/plain"], "X-Odd": ["base64:G1sySg=="]}' WHERE key LIKE 'done%'`)
	execute(t, pool, `INSERT INTO gatepost.idempotency_steps SELECT operation, scope, key, 'book', '\x0102', clock_timestamp() FROM gatepost.idempotency_keys WHERE key = 'lost'`)
	lost := idem.Key{Operation: "payments.charge", Scope: "bolt", Key: "lost"}
	for _, c := range []struct {
		key   [3]string
		parts []string
	}{
		{
			[3]string{"payments.charge", "acme", "done4444bbbb2222cccc"},
			[]string{"KEY       done4444…\n", "STATE     done 1 min 3", "EXPIRES   20", "STATUS    201\n", "HEADERS   Content-Type: text/plain\n          X-Odd: base64:G1sySg==\n", "BODY      3 bytes; --body prints it\n", "fingerprint abababab"},
		},
		{[3]string{"payments.charge", "acme", "live4444bbbb2222cccc"}, []string{"STATE     running; its claim lapses in 30 min", "ATTEMPT   3\n"}},
		{[3]string{"payments.charge", "bolt", "lost"}, []string{"STATE     in doubt: its claim lapsed 5 min", "EXTERNAL  " + lost.ExternalKey() + "\n", "STEPS     book, 2 bytes, "}},
		{[3]string{"payments.charge", "bolt", "old44444bbbb2222cccc"}, []string{"EXPIRES   expired 5 min 3"}},
		{[3]string{"payments.refund", "acme", "tomb4444bbbb2222cccc"}, []string{"STATE     tombstone: done 1 min", "BODY      5,000,000 bytes, not kept\n"}},
		{[3]string{"mail.send", "acme", "aaaa1111bbbb2222cccc"}, []string{"STATE     released: "}},
	} {
		r := gatepost(t, url, append([]string{"keys", "show"}, c.key[:]...)...)
		for _, part := range c.parts {
			if r.code != 0 || !strings.Contains(r.stdout, part) {
				t.Errorf("show %v printed\n%s%s\nwithout %q", c.key, r.stdout, r.stderr, part)
			}
		}
	}
	want(t, gatepost(t, url, "keys", "show", "payments.charge", "bolt", "lost", "--call", "capture"), 0, "EXTERNAL  "+lost.ExternalKey("capture")+"\n")
	want(t, gatepost(t, url, "keys", "show", "payments.charge", "bolt", "lost", "--json"), 0, `"external_key":"`+lost.ExternalKey()+`"`)
	want(t, gatepost(t, url, "keys", "show", "payments.charge", "acme", "lost"), 1, `no such key of payments.charge in scope "acme"`)
	want(t, gatepost(t, url, "keys", "show", "payment.charge", "acme", "lost"), 1, "did you mean payments.charge?")
	want(t, gatepost(t, url, "keys", "show", "payments.charge", "acne", "lost"), 1, "did you mean acme?")
	want(t, gatepost(t, url, "keys", "show", "payments.charge"), 2, "SCOPE and KEY are missing")
	want(t, gatepost(t, url, "keys", "shwo"), 2, "did you mean show?")
}

func TestKeysShow_GivesTheBodyByteForByte(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	someKeys(t, url)
	name := []string{"keys", "show", "payments.charge", "acme", "done4444bbbb2222cccc"}
	if r := gatepost(t, url, append(name, "--body")...); r.stdout != "\x00\xff\n" {
		t.Errorf("--body printed %q", r.stdout)
	}
	var shown struct {
		State string
		Body  []byte
		Steps []any
	}
	for _, with := range []bool{true, false} {
		args := append(name, "--json")
		if with {
			args = append(args, "--body")
		}
		shown.Body = nil
		r := gatepost(t, url, args...)
		if err := json.Unmarshal([]byte(r.stdout), &shown); err != nil || shown.State != "done" || shown.Steps == nil {
			t.Errorf("%q: %v", r.stdout, err)
		}
		if got := string(shown.Body) == "\x00\xff\n"; got != with {
			t.Errorf("with --body %v the body is %s", with, base64.StdEncoding.EncodeToString(shown.Body))
		}
	}
}

func TestKeysForget_RemovesWhatIsNotLive(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := someKeys(t, url)
	r := gatepost(t, url, "keys", "forget", "payments.charge", "acme", "live4444bbbb2222cccc")
	want(t, r, 75, "is running, under a claim that lasts for 30 min")
	want(t, gatepost(t, url, "keys", "forget", "payments.charge", "acme", "done4444bbbb2222cccc"), 0, `payments.charge in scope "acme" is forgotten. It was done 1 min`)
	want(t, gatepost(t, url, "keys", "forget", "payments.charge", "acme", "done4444bbbb2222cccc"), 1, "no such key of payments.charge")
	want(t, gatepost(t, url, "keys", "forget", "payments.charge", "bolt", "lost"), 0, "It was in doubt: ")
	want(t, gatepost(t, url, "keys", "forget", "payments.charge", "", "k"), 2, "Scope must be")
	want(t, gatepost(t, url, "keys", "forget", "payments.charge", "acme", "a b"), 2, "visible ASCII")
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM gatepost.idempotency_keys").Scan(&left); err != nil || left != 4 {
		t.Errorf("%d of 6 keys are left (%v), want 4", left, err)
	}
}

func TestKeysForget_RefusesACallInATransaction(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	store, err := idem.New(pgtest.Connect(t, url), idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	key := idem.Key{Operation: "o", Scope: "s", Key: "k"}
	result, err := store.Do(t.Context(), key, idem.Fingerprint{}, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
		want(t, gatepost(t, url, "keys", "forget", "o", "s", "k"), 75, "is running, in a transaction that is still open; nothing was forgotten")
		return idem.Reply{Status: http.StatusCreated}, nil
	})
	if err != nil || result.Status != http.StatusCreated {
		t.Errorf("the call gave %+v, %v", result, err)
	}
	want(t, gatepost(t, url, "keys", "forget", "o", "s", "k"), 0, "is forgotten. It was done")
}

func TestKeys_SayThatTheSchemaIsMissing(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	for _, args := range [][]string{{"ls"}, {"show", "o", "s", "k"}, {"forget", "o", "s", "k"}} {
		want(t, gatepost(t, url, append([]string{"keys"}, args...)...), 1, "run: gatepost migrate up")
	}
}
