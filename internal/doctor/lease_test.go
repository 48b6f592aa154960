package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
)

// insertLease puts a lease into a database, as held until then.
func insertLease(name, token, left string) string {
	return fmt.Sprintf(`INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
		VALUES ('%s', %s, gen_random_uuid(), 'web-1', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '%s', 1)`, quoted(name), token, left)
}

func TestLapsed_OnlyLongAgo(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, insertLease("held", "1", "1 hour"), insertLease("just", "2", "-10 min"))
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("it found %q", got)
	}
	for n := range 5 {
		run(t, url, insertLease(fmt.Sprintf("old's %d", n), fmt.Sprint(10+n), fmt.Sprintf("-%d hours", 20-n)))
	}
	run(t, url, "UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = 'old''s 4'") // released
	r := examine(t, url, patient())
	if got := found(r); !slices.Equal(got, []string{"lapsed note gatepost.leases"}) {
		t.Fatalf("it found %q", got)
	}
	f := result(t, r, "lapsed").Findings[0]
	if !strings.Contains(f.Text, "4 leases lapsed and never released") || !strings.Contains(f.Text, "old's 0, of web-1, 20 h ago; old's 1, of web-1, 19 h ago; old's 2, of web-1, 18 h ago; and more.") {
		t.Errorf("it says %q", f.Text)
	}
	if f.Remedy[1] != `gatepost release 'old'\''s 0' --token 10` {
		t.Errorf("the remedy is %q", f.Remedy)
	}
}

func TestOverlong_FindsWhatNobodyGetsForLongerThanATTL(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, insertLease("longest", "1", "167 hours 59 min"), insertLease("free", "2", "300 hours"),
		"UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = 'free'")
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("of leases that can be it found %q", got)
	}
	run(t, url, insertLease("ghost's", "7", "10 years"), insertLease("kept", "8", "-1 min"),
		"UPDATE gatepost.leases SET nonce = NULL, holder = NULL, reserved_for = 'web-2', reserved_until = clock_timestamp() + interval '9 years' WHERE name = 'kept'")
	r := examine(t, url, patient())
	if got := found(r); !slices.Equal(got, []string{"overlong weakens lease ghost's", "overlong weakens lease kept"}) {
		t.Fatalf("it found %q", got)
	}
	f := result(t, r, "overlong").Findings
	if !strings.HasPrefix(f[0].Text, "It is held by web-1 until ") || !slices.Equal(f[0].Remedy, []string{`gatepost release 'ghost'\''s' --token 7`}) {
		t.Errorf("it says %+v", f[0])
	}
	if !strings.HasPrefix(f[1].Text, "It is reserved for web-2 until ") {
		t.Errorf("it says %+v", f[1])
	}
	heal(t, url, r)
	if got := found(examine(t, url, patient())); !slices.Equal(got, []string{"overlong weakens lease ghost's"}) {
		t.Errorf("after the remedy in SQL it finds %q", got)
	}
	for n := range 4 {
		run(t, url, insertLease(fmt.Sprint(n), "9", "20 years"))
	}
	if f := result(t, examine(t, url, patient()), "overlong").Findings; len(f) != 3 || !strings.HasSuffix(f[2].Text, " And so are 2 more.") {
		t.Errorf("of five it says %+v", f)
	}
}

// A token that was written by hand is beyond what a time.Duration holds.
func TestClockBack_FindsATokenThatNoClockGives(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, insertLease("n", "9000000000000000000", "1 min"))
	if got := found(examine(t, url, patient())); !slices.Equal(got, []string{"clock-back weakens the server's clock"}) {
		t.Errorf("it found %q", got)
	}
}

func TestClockBack_FindsLeasesFromTheFuture(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	want := []string{"clock-back weakens the server's clock"}
	now := "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	run(t, url, insertLease("now", now, "1 min"))
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("of a lease of now it found %q", got)
	}
	run(t, url, insertLease("ahead", now+" + 7200000000", "1 min"))
	r := examine(t, url, patient())
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("of a token in the future it found %q", got)
	}
	if f := result(t, r, "clock-back").Findings[0]; !strings.Contains(f.Text, "1 h 59 min behind") {
		t.Errorf("it says %q", f.Text)
	}
	run(t, url, "DELETE FROM gatepost.leases WHERE name = 'ahead'", "UPDATE gatepost.leases SET renewed_at = clock_timestamp() + interval '1 hour'")
	if got := found(examine(t, url, patient())); !slices.Equal(got, want) {
		t.Errorf("of a renewal in the future it found %q", got)
	}
}

func insertKey(operation, state, leaseUntil, expires string) string {
	return fmt.Sprintf(`INSERT INTO gatepost.idempotency_keys
			(operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, lease_until, created_at, expires_at)
		VALUES ('%s', 's', gen_random_uuid()::text, %s, sha256('x'), 1, gen_random_uuid(), 1, %s, clock_timestamp() - interval '2 days',
			clock_timestamp() + interval '%s')`, quoted(operation), state, leaseUntil, expires)
}

func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

func TestKeys_BacklogAndDoubt(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, insertKey("charge", "2", "NULL", "-1 hour"), insertKey("charge", "1", "clock_timestamp() + interval '1 min'", "-3 days"),
		insertKey("charge", "1", "clock_timestamp() - interval '1 min'", "1 day"))
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("of healthy keys it found %q", got)
	}
	run(t, url, insertKey("refund", "2", "NULL", "-30 hours"), insertKey("o'clock", "1", "clock_timestamp() - interval '3 hours'", "1 day"),
		"ALTER TABLE gatepost.idempotency_keys DISABLE TRIGGER USER", insertKey("mail", "1", "NULL", "1 day"), "ALTER TABLE gatepost.idempotency_keys ENABLE TRIGGER USER")
	r := examine(t, url, patient())
	want := []string{"key-backlog note gatepost.idempotency_keys", "key-running note operation o'clock", "key-running weakens operation mail"}
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
	if f := result(t, r, "key-backlog").Findings[0]; !strings.HasPrefix(f.Text, "1 key expired long ago, the oldest 1 d 6 h ago") {
		t.Errorf("it says %q", f.Text)
	}
	heal(t, url, r) // its remedies only read, and must be SQL
}

func TestHorizon_FindsOldTransactions(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	opts := patient()
	opts.Limits.Open = time.Millisecond
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("alone, it found %q", got)
	}
	tx := connect(t, url)
	if _, err := tx.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_if_assigned()"); err != nil {
		t.Fatal(err)
	}
	r := examine(t, url, opts)
	if got, want := found(r), fmt.Sprintf("horizon note backend %d (user postgres)", tx.PgConn().PID()); !slices.Equal(got, []string{want}) {
		t.Errorf("it found %q, want %q", got, want)
	}
	if f := result(t, r, "horizon").Findings[0]; !strings.Contains(f.Text, "idle in transaction") {
		t.Errorf("it says %q", f.Text)
	}
	heal(t, url, r)
	until(t, "its remedy", func() bool { return len(found(examine(t, url, opts))) == 0 })
}

func TestUpkeep_DeadRowsAndHotShare(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	opts := patient()
	opts.Limits.HotUpdates, opts.Limits.DeadRows = 100, 100
	conn := connect(t, url)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE gatepost.leases SET (autovacuum_enabled = off)")
	exec(insertLease("n", "1", "1 hour"))
	exec("CREATE INDEX x ON gatepost.leases (renewed_at)")
	exec("DO $$ BEGIN FOR n IN 1..500 LOOP UPDATE gatepost.leases SET renewed_at = clock_timestamp(); COMMIT; END LOOP; END $$")
	if err := conn.Close(t.Context()); err != nil { // flushes its statistics
		t.Fatal(err)
	}
	want := []string{"extra-index note gatepost.x", "dead-rows note gatepost.leases", "hot-share note gatepost.leases", "autovacuum note gatepost.leases"}
	var got []string
	until(t, "statistics", func() bool { got = found(examine(t, url, opts)); return len(got) == len(want) })
	if !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
	heal(t, url, examine(t, url, opts))
	until(t, "its remedies", func() bool { return len(found(examine(t, url, opts))) == 0 })
}

// An acquisition changes the token, so it is no HOT update, and none is missed.
func TestHotShare_LeavesAcquisitionsOut(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	opts := patient()
	opts.Limits.HotUpdates = 100
	run(t, url, insertLease("n", "1", "1 hour"),
		"DO $$ BEGIN FOR n IN 1..300 LOOP UPDATE gatepost.leases SET token = token + 1, transitions = transitions + 1; COMMIT; END LOOP; END $$",
		"DO $$ BEGIN FOR n IN 1..300 LOOP UPDATE gatepost.leases SET renewed_at = clock_timestamp(); COMMIT; END LOOP; END $$")
	conn := connect(t, url)
	until(t, "statistics", func() bool {
		var updates int64
		err := conn.QueryRow(t.Context(), "SELECT n_tup_upd FROM pg_stat_all_tables WHERE schemaname = 'gatepost' AND relname = 'leases'").Scan(&updates)
		return err == nil && updates == 600
	})
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("it found %q", got)
	}
}

func TestWraparound_FindsOldTables(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	opts := patient()
	opts.Limits.TableXIDs = 1
	r := examine(t, url, opts)
	list := found(r)
	if len(list) < len(doctor.InventoryNames()) || !slices.Contains(list, "wraparound note gatepost.leases") {
		t.Errorf("it found %q", list)
	}
	opts.Limits.TableXIDs = 1_000_000
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("it found %q", got)
	}
	heal(t, url, r) // VACUUM (FREEZE) works
}

// A name that begins as a flag does goes behind the flags.
func TestLapsed_NameLikeAFlag(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, insertLease("--all", "7", "-3 hours"))
	f := result(t, examine(t, url, patient()), "lapsed").Findings
	if len(f) != 1 || len(f[0].Remedy) != 2 || f[0].Remedy[1] != "gatepost release --token 7 -- --all" {
		t.Errorf("it says %+v", f)
	}
}

// A large backlog is not counted to its end.
func TestKeys_ALargeBacklogIsAtLeastSoMuch(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	one := insertKey("charge", "2", "NULL", "-3 days")
	run(t, url, strings.Replace(one, "VALUES (", "SELECT ", 1)[:len(one)-len("VALUES (")+len("SELECT ")-1]+" FROM generate_series(1, 10001)")
	f := result(t, examine(t, url, patient()), "key-backlog").Findings
	if len(f) != 1 || !strings.HasPrefix(f[0].Text, "At least 10000 keys expired long ago, the oldest 3 d ago") {
		t.Errorf("it says %+v", f)
	}
}
