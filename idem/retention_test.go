package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// own is a database of the test's own: what GC does concerns all rows.
func own(t *testing.T, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, pgtest.Database(t), change...)
}

// fill writes n done rows that expired so long ago, each with a step.
func fill(t *testing.T, pool *pgxpool.Pool, n int, expired string) idem.Scope {
	t.Helper()
	scope := idem.Scope(pgtest.Name(t))
	exec(t, pool, `
		INSERT INTO gatepost.idempotency_keys
		SELECT 'fill', $1, i::text, 2, sha256('x'), 1, gen_random_uuid(), 1, NULL, 200, NULL, 'x', 1, NULL,
			now() - interval '2 d', now() - interval '2 d', now() - $2::interval - i * interval '1 ms'
		FROM generate_series(1, $3::int) AS i`, scope, expired, n)
	exec(t, pool, `INSERT INTO gatepost.idempotency_steps SELECT operation, scope, key, 's', 'x', now() FROM gatepost.idempotency_keys WHERE scope = $1`, scope)
	return scope
}

func gc(t *testing.T, s *idem.Store) int64 {
	t.Helper()
	removed, err := s.GC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func TestGC_RemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := poolWith(t, pgtest.Owner(t, url), setting("session_replication_role", "replica"))
	keyOf := func(i int) idem.Key { return idem.Key{Operation: "x", Scope: idem.Global, Key: fmt.Sprint(i)} }
	for i, c := range beginTable {
		if c.row != "" {
			put(t, pool, keyOf(i), c.row)
		}
	}
	s := holder(t, poolWith(t, url), idem.Config{}) // whose triggers fire
	backlog, err := s.Backlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removed := gc(t, s)
	if removed != 5 || backlog.Expired != removed || backlog.Age < time.Second || backlog.Age > time.Minute {
		t.Errorf("removed %d rows, of a backlog of %+v; want 5", removed, backlog)
	}
	for i, c := range beginTable {
		if r := rowOf(t, pool, keyOf(i)); (r.State == 0) != (c.same == isClaim) {
			t.Errorf("%s: row %+v", c.name, r)
		}
	}
	if rows, steps := value[int](t, pool, `SELECT count(*) FROM gatepost.idempotency_keys`), value[int](t, pool, `SELECT count(*) FROM gatepost.idempotency_steps`); rows != steps {
		t.Errorf("%d rows and %d steps", rows, steps)
	}
	if backlog, err = s.Backlog(t.Context()); err != nil || backlog != (idem.Backlog{}) {
		t.Errorf("backlog behind it: %+v, %v", backlog, err)
	}
}

// Any number of collections at once, at every default isolation: each row goes once.
func TestGC_CountsRightOnEveryNodeAtOnce(t *testing.T) {
	t.Parallel()
	pool := own(t)
	fill(t, pool, 5500, "1 h")
	if got := collect(t, pool); got != 5500 {
		t.Errorf("%d rows removed, want 5500", got)
	}
}

// collect runs 8 collections at once and returns what they removed.
func collect(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	var removed atomic.Int64
	var collecting sync.WaitGroup
	for n := range 8 {
		level := []string{"read committed", "repeatable read", "serializable"}[n%3]
		s := holder(t, poolWith(t, pool.Config().ConnString(), setting("default_transaction_isolation", level)), idem.Config{})
		collecting.Go(func() {
			n, err := s.GC(t.Context())
			if err != nil {
				t.Errorf("%s: %v", level, err)
			}
			removed.Add(n)
		})
	}
	collecting.Wait()
	return removed.Load()
}

// While claims come and go over the very rows that are collected, no live one goes.
func TestGC_LeavesLiveClaimsAlone(t *testing.T) {
	t.Parallel()
	const rows = 4000
	pool := own(t)
	scope := fill(t, pool, rows, "1 h")
	over := make(chan struct{})
	var claiming sync.WaitGroup
	var claimed atomic.Int64
	for n := range 4 {
		s := holder(t, pool, idem.Config{})
		claiming.Go(func() {
			for i := n; ; i = (i + 7) % rows {
				select {
				case <-over:
					return
				default:
				}
				a, err := s.Begin(t.Context(), idem.Key{Operation: "fill", Scope: scope, Key: fmt.Sprint(1 + i)}, fp)
				if errors.Is(err, idem.ErrInProgress) {
					continue
				}
				if err != nil {
					t.Errorf("Begin: %v", err)
					return
				}
				if _, done := a.Replay(); done {
					continue
				}
				claimed.Add(1)
				if err := a.Finish(t.Context(), answer, nil); err != nil {
					t.Errorf("the row of a live claim is gone: %v", err)
				}
			}
		})
	}
	waitUntil(t, "isClaim", func() bool { return claimed.Load() > 20 })
	collect(t, pool)
	close(over)
	claiming.Wait()
	if left := value[int](t, pool, `SELECT count(*) FROM gatepost.idempotency_keys WHERE expires_at < now()`); left > 0 {
		t.Errorf("%d expired rows are left", left)
	}
	if kept := value[int64](t, pool, `SELECT count(*) FROM gatepost.idempotency_keys`); kept != claimed.Load() {
		t.Errorf("%d rows are left of %d that were finished", kept, claimed.Load())
	}
}

func TestGC_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := own(t)
	fill(t, pool, 10, "1 h")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	removed, err := holder(t, pool, idem.Config{}).GC(ctx)
	wantErr(t, err, context.Canceled)
	if removed != 0 {
		t.Errorf("%d rows", removed)
	}
}

// At 100,000 rows GC reads the index, and only as much of it as there is to do.
func TestGC_ReadsTheIndex(t *testing.T) {
	t.Parallel()
	pool := own(t)
	fill(t, pool, 3000, "1 h")
	fill(t, pool, 100_000, "-1 d")
	exec(t, pool, `VACUUM ANALYZE gatepost.idempotency_keys`)
	tx := begin(t, pool, pgx.TxOptions{})
	for _, sql := range []string{
		`SET LOCAL plan_cache_mode = force_generic_plan`, // what a store comes to
		`PREPARE collect AS ` + idemdb.KeyCollect,
		`PREPARE backlog AS ` + idemdb.KeyBacklog,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // the last one finds nothing
		for _, execute := range []string{`EXECUTE backlog(10000)`, `EXECUTE collect(1000)`} {
			plan := explain(t, tx, execute)
			if !strings.Contains(plan, "using idempotency_keys_expires_at_idx") || !strings.Contains(plan, "Index Cond: (expires_at <=") || strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s:\n%s", execute, plan)
			}
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := value[int](t, pool, `SELECT count(*) FROM gatepost.idempotency_keys`); left != 100_000 {
		t.Errorf("%d rows are left", left)
	}
}

// What somebody works with is left to the next collection, and not waited for.
func TestGC_SkipsWhatIsLocked(t *testing.T) {
	t.Parallel()
	pool := own(t)
	scope := fill(t, pool, 1200, "1 h")
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), `SELECT FROM gatepost.idempotency_keys WHERE scope = $1 AND key IN ('1', '600', '1200') FOR KEY SHARE`, scope); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := holder(t, pool, idem.Config{})
	if removed, err := s.GC(ctx); err != nil || removed != 1197 {
		t.Errorf("%d rows removed, %v; want 1197", removed, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if removed := gc(t, s); removed != 3 {
		t.Errorf("%d rows removed after that, want 3", removed)
	}
}
