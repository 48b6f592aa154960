package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// garbage is three expired keys, two names that were free for nine days, and one
// waiter that is gone; beside one of each that stays.
func garbage(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Connect(t, url)
	for _, key := range []string{"k1", "k2", "k3"} {
		putKeys(t, pool, keyRow{"o", "s", key, 2, 0, -26*time.Hour - 90*time.Minute})
	}
	putKeys(t, pool, keyRow{"o", "s", "stays", 2, 0, time.Hour})
	put(t, pool,
		leaseRow{name: "free", token: 1, age: 230 * time.Hour, left: -217 * time.Hour},
		leaseRow{name: "lapsed", holder: "web-1", token: 1, age: 230 * time.Hour, left: -217 * time.Hour},
		leaseRow{name: "stays", token: 1, age: 230 * time.Hour, left: -time.Hour},
	)
	waits(t, pool, "w", "web-3", "web-4")
	execute(t, pool, `UPDATE gatepost.waiters SET expires_at = clock_timestamp() - interval '210 s' WHERE client = 'web-3'`)
	return pool
}

func counts(t *testing.T, pool *pgxpool.Pool) (n [3]int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM gatepost.idempotency_keys), (SELECT count(*) FROM gatepost.leases), (SELECT count(*) FROM gatepost.waiters)`).Scan(&n[0], &n[1], &n[2])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGC_RemovesWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := garbage(t, url)
	equal(t, gatepost(t, url, "gc", "--dry-run").stdout, `
WHAT              TO REMOVE  OLDEST
idempotency keys          3  due 1 d 3 h ago
free leases               2  due 9 d 1 h ago
dead waiters              1  due 3 min 30 s ago
`)
	if got := counts(t, pool); got != [3]int{4, 3, 2} {
		t.Errorf("the dry run left %v", got)
	}
	want(t, gatepost(t, url, "gc", "--limit", "1"), 0, "idempotency keys        1     2  due 1 d 3 h ago")
	if got := counts(t, pool); got != [3]int{3, 2, 1} {
		t.Errorf("with --limit 1 it left %v", got)
	}
	equal(t, gatepost(t, url, "gc").stdout, `
WHAT              REMOVED  LEFT  OLDEST
idempotency keys        2     0  due 1 d 3 h ago
free leases             1     0  due 9 d 1 h ago
dead waiters            0     0
`)
	if got := counts(t, pool); got != [3]int{1, 1, 1} {
		t.Errorf("it left %v", got)
	}
	want(t, gatepost(t, url, "gc", "--limit", "-1"), 2, "--limit is -1")
	want(t, gatepost(t, pgtest.EmptyDatabase(t), "gc"), 1, "run: gatepost migrate up")
}

// It takes as many transactions as it needs, and no row more than it was told.
func TestGC_GoesOnToItsLimit(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	const n = 2500
	execute(t, pool, `
		INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, body_len, created_at, done_at, expires_at)
		SELECT 'o', 's', n::text, 2, decode(repeat('ab', 32), 'hex'), 1, gen_random_uuid(), 1, 0, now(), now(), now() - interval '1 h' FROM generate_series(1, $1::int) AS n`, n)
	execute(t, pool, `
		INSERT INTO gatepost.leases (name, token, acquired_at, renewed_at, expires_at, transitions)
		SELECT 'n' || n, n, now() - interval '10 d', now() - interval '10 d', now() - interval '9 d', 1 FROM generate_series(1, $1::int) AS n`, n)
	want(t, gatepost(t, url, "gc", "--limit", "1500"), 0, "")
	if got := counts(t, pool); got != [3]int{n - 1500, n - 1500, 0} {
		t.Errorf("with --limit 1500 it left %v", got)
	}
	want(t, gatepost(t, url, "gc"), 0, "")
	if got := counts(t, pool); got != [3]int{} {
		t.Errorf("it left %v", got)
	}
}

// A key and a name that somebody works with are skipped, and told.
func TestGC_LeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := garbage(t, url)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`SELECT FROM gatepost.idempotency_keys WHERE key = 'k2' FOR UPDATE`,
			`SELECT FROM gatepost.leases WHERE name = 'lapsed' FOR KEY SHARE`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		type kind struct{ Due, Removed, Left int }
		var got struct {
			DryRun                bool `json:"dry_run"`
			Keys, Leases, Waiters kind
		}
		r := gatepost(t, url, "gc", "--json")
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
			t.Fatalf("%q: %v", r.stdout, err)
		}
		if got.Keys != (kind{3, 2, 1}) || got.Leases != (kind{2, 1, 1}) || got.Waiters != (kind{1, 1, 0}) || got.DryRun {
			t.Errorf("it printed %s", r.stdout)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
