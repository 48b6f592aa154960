package idem_test

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestInbox_TakesAnyTextAsAnID(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	long := strings.Repeat("x", 255)
	ids := []string{
		"m", "M", "orders/7@1042", "with a space", "Grüße", "Gru\u0308\u00dfe", "a\x00b", "\xff\xfe", " ", long, long + "x",
		idem.InboxKey(consumer, "with a space").Key, strings.Repeat("y", 1<<20),
	}
	for range 2 {
		for _, id := range ids {
			if err := consume(t.Context(), pool, consumer, id, hello, run("x")); err != nil {
				t.Errorf("%.20q: %v", id, err)
			}
		}
	}
	if n := count(t, pool, name); n != len(ids) {
		t.Errorf("%d effects, want one of each of %d IDs", n, len(ids))
	}
	key := idem.InboxKey(consumer, "orders/7@1042")
	if key != (idem.Key{Operation: "inbox", Scope: idem.Scope(consumer), Key: "orders/7@1042"}) {
		t.Errorf("the key is %+v", key)
	}
}

func TestInbox_RefusesWhatNamesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, run := effects(t, pool)
	for _, name := range [][2]string{{"", "m"}, {"c", ""}, {"c\x00", "m"}, {"\xff", "m"}, {strings.Repeat("c", 201), "m"}} {
		wantErr(t, consume(t.Context(), pool, name[0], name[1], hello, run("x")), idem.ErrInvalidKey)
	}
}

func TestInbox_RemembersForTwoWeeksOrAsItsStoreSays(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	days := func(consumer string) int {
		return value[int](t, pool, "SELECT round(extract(epoch FROM expires_at - clock_timestamp()) / 86400)::int"+
			" FROM gatepost.idempotency_keys WHERE operation = 'inbox' AND scope = $1", consumer)
	}
	consumer := pgtest.Name(t)
	if err := consume(t.Context(), pool, consumer, "m", hello, run("first")); err != nil {
		t.Fatal(err)
	}
	if got := days(consumer); got != 14 {
		t.Errorf("the mark lives %d days, want 14", got)
	}
	exec(t, pool, "UPDATE gatepost.idempotency_keys SET expires_at = clock_timestamp() WHERE scope = $1", consumer)
	if err := consume(t.Context(), pool, consumer, "m", other, run("second")); err != nil {
		t.Fatal(err) // as if it were absent, also with another payload
	}
	if got := days(consumer); got != 14 {
		t.Errorf("the second mark lives %d days, want 14", got)
	}
	wantErr(t, consume(t.Context(), pool, consumer, "m", hello, run("third")), idem.ErrMismatch)
	wantEffects(t, pool, name, "first second")

	consumer = pgtest.Name(t)
	s := store(t, pool, idem.Config{LongestRetry: 30 * 24 * time.Hour})
	err := pgx.BeginTxFunc(t.Context(), pool, orReadCommitted(pgx.TxOptions{}), func(tx pgx.Tx) error {
		return s.Inbox(t.Context(), tx, consumer, "m", hello, run("fourth"))
	})
	if err != nil || days(consumer) != 30 {
		t.Errorf("%v, %d days; want the Store's 30", err, days(consumer))
	}
}

func TestInbox_ADuplicateWritesAndLocksNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, run := effects(t, pool)
	consumer := pgtest.Name(t)
	if err := consume(t.Context(), pool, consumer, "m", hello, run("x")); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, pgx.TxOptions{})
	if err := idem.Inbox(t.Context(), tx, consumer, "m", hello, run("x")); err != nil {
		t.Fatal(err)
	}
	var assigned bool
	if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&assigned); err != nil || assigned {
		t.Errorf("the transaction has an id: %t, %v", assigned, err)
	}
}

// Also where the table has no statistics, as a new one, and the consumer has seen much.
func TestInbox_LooksAtOneRowAMessage(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pgtest.Connect(t, pgtest.Owner(t, pool.Config().ConnString())), "ALTER TABLE gatepost.idempotency_keys SET (autovacuum_enabled = false)")
	exec(t, pool, `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no,
			created_at, expires_at)
		SELECT 'inbox', 'c', 'm' || n, 2, $1, 1, gen_random_uuid(), 1, clock_timestamp(), clock_timestamp() + interval '1 day'
		FROM generate_series(1, 5000) AS n`, hello[:])
	attempt, prints := "00000000-0000-4000-8000-000000000000", []string{hex.EncodeToString(hello[:])}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		tx := begin(t, pool, pgx.TxOptions{})
		if _, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		plan := explain(t, tx, idemdb.InboxMark, []string{"m7"}, prints, "inbox", "c", int64(1000), int16(1), attempt, int64(1000)) +
			explain(t, tx, idemdb.InboxSeen, []string{"m7"}, attempt, "inbox", "c")
		if strings.Count(plan, "Index Scan using idempotency_keys_pkey") != 2 || strings.Contains(plan, "Seq Scan on") {
			t.Errorf("%s reads more than a row:\n%s", mode, plan)
		}
		for _, removed := range regexp.MustCompile(`Rows Removed by Filter: (\d+)`).FindAllStringSubmatch(plan, -1) {
			if removed[1] != "1" { // the message itself, which is there
				t.Errorf("%s reads and drops %s rows:\n%s", mode, removed[1], plan)
			}
		}
	}
}

func explain(t *testing.T, tx pgx.Tx, sql string, args ...any) string {
	t.Helper()
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
