package pglock_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// holes are those of the only guarded table of a database.
func holes(t *testing.T, pool *pgxpool.Pool) []pglock.GuardHole {
	t.Helper()
	guards, err := pglock.Guards(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(guards) != 1 {
		t.Fatalf("the guards are %+v, want one", guards)
	}
	return guards[0].Holes
}

func onlyHole(t *testing.T, pool *pgxpool.Pool) pglock.GuardHole {
	t.Helper()
	all := holes(t, pool)
	if len(all) != 1 {
		t.Fatalf("the holes are %+v, want one", all)
	}
	return all[0]
}

// partitioned is a guarded table g with partitions g1 and, below g2, g2a; and a table
// g3 that may become one.
func partitioned(t *testing.T, opts pglock.GuardOptions) (*pgxpool.Pool, *pglock.Lease) {
	t.Helper()
	pool := poolWith(t, pgtest.Database(t), setting("default_transaction_isolation", "read committed"))
	for _, sql := range []string{
		"CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)",
		"CREATE TABLE g1 PARTITION OF g FOR VALUES IN (1)",
		"CREATE TABLE g2 PARTITION OF g FOR VALUES IN (2, 20) PARTITION BY LIST (v)",
		"CREATE TABLE g2a PARTITION OF g2 FOR VALUES IN (2)",
		"CREATE TABLE g3 (v int, lease text)", // columns in another order
	} {
		exec(t, pool, sql)
	}
	l := acquire(t, asleep(t, pool), "a", nil)
	guard(t, pool, "g", opts)
	return pool, l
}

var bothGuards = map[string]pglock.GuardOptions{"lease": byLease("a"), "column": byColumn("lease")}

// Each partition is guarded by itself too, and rows of those that are attached later.
func TestGuard_CoversPartitions(t *testing.T) {
	t.Parallel()
	for kind, opts := range bothGuards {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, l := partitioned(t, opts)
			if found := holes(t, pool); found != nil {
				t.Errorf("holes %+v", found)
			}
			exec(t, pool, "ALTER TABLE g ATTACH PARTITION g3 FOR VALUES IN (3)")
			exec(t, pool, "CREATE TABLE g4 PARTITION OF g2 FOR VALUES IN (20)")
			for _, sql := range []string{
				"INSERT INTO g VALUES ('a', 1)", "INSERT INTO g1 VALUES ('a', 1)", "INSERT INTO g2 VALUES ('a', 2)", "INSERT INTO g2a VALUES ('a', 2)",
				"INSERT INTO g3 (lease, v) VALUES ('a', 3)", "INSERT INTO g4 VALUES ('a', 20)", "UPDATE g3 SET lease = 'a'", "UPDATE g SET v = 3 WHERE v = 1",
				"DELETE FROM g4", "DELETE FROM g2a", "DELETE FROM g",
			} {
				_, err := session(t, pool).Exec(t.Context(), sql)
				wantGuard(t, sql, err)
				if err := l.InTx(t.Context(), func(tx pgx.Tx) error { return run(t, tx, sql) }); err != nil {
					t.Errorf("fenced, %s: %v", sql, err)
				}
			}
			_, err := session(t, pool).CopyFrom(t.Context(), pgx.Identifier{"g3"}, []string{"v", "lease"}, pgx.CopyFromRows([][]any{{3, "a"}}))
			wantGuard(t, "COPY into a partition attached later", err)
			for _, table := range []string{"g", "g1", "g2", "g2a"} {
				_, err := session(t, pool).Exec(t.Context(), "TRUNCATE "+table)
				wantGuard(t, "TRUNCATE "+table, err)
			}
		})
	}
}

// What is open until guard_table is called again: TRUNCATE of a partition that was
// attached later, named directly. It is found.
func TestGuard_FindsPartitionsThatWereAttachedLater(t *testing.T) {
	t.Parallel()
	for kind, opts := range bothGuards {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, _ := partitioned(t, opts)
			exec(t, pool, "ALTER TABLE g ATTACH PARTITION g3 FOR VALUES IN (3)")
			exec(t, pool, "TRUNCATE g3")
			if hole := onlyHole(t, pool); hole.Table[1] != "g3" || hole.Problem != pglock.GuardMissing {
				t.Errorf("hole %+v", hole)
			}
			guard(t, pool, "g", opts)
			if found := holes(t, pool); found != nil {
				t.Errorf("after guarding again there are holes %+v", found)
			}
			_, err := pool.Exec(t.Context(), "TRUNCATE g3")
			wantGuard(t, "TRUNCATE g3", err)
		})
	}
}

// A detached partition stays as guarded as a trigger a statement makes it, and can come
// back.
func TestGuard_SurvivesDetachAndAttach(t *testing.T) {
	t.Parallel()
	for kind, opts := range bothGuards {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, _ := partitioned(t, opts)
			exec(t, pool, "ALTER TABLE g DETACH PARTITION g1")
			_, err := pool.Exec(t.Context(), "INSERT INTO g1 VALUES ('a', 1)")
			wantGuard(t, "detached", err)
			exec(t, pool, "ALTER TABLE g ATTACH PARTITION g1 FOR VALUES IN (1)")
			if found := holes(t, pool); found != nil {
				t.Errorf("holes %+v", found)
			}
		})
	}
}

func TestUnguard_OpensTheTableAndItsPartitions(t *testing.T) {
	t.Parallel()
	for kind, opts := range bothGuards {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool, _ := partitioned(t, opts)
			exec(t, pool, "ALTER TABLE g ATTACH PARTITION g3 FOR VALUES IN (3)")
			_, err := pglock.UnguardTable(t.Context(), pool, pgx.Identifier{"g1"})
			wantErr(t, err, pglock.ErrInvalidGuard)
			if !strings.Contains(err.Error(), "the guard of public.g1 is its parent's") {
				t.Errorf("a partition by itself: %v", err)
			}
			for _, want := range []bool{true, false} {
				removed, err := pglock.UnguardTable(t.Context(), pool, pgx.Identifier{"public", "g"})
				if err != nil || removed != want {
					t.Errorf("UnguardTable is %t, %v; want %t", removed, err, want)
				}
			}
			exec(t, pool, "INSERT INTO g VALUES ('x', 1), ('x', 2), ('x', 3)")
			exec(t, pool, "TRUNCATE g3")
			if n := value[int](t, pool, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'gatepost_guard%'"); n != 0 {
				t.Errorf("%d triggers are left", n)
			}
		})
	}
}

// A child of plain inheritance is guarded with its parent; one that comes later is open,
// and found.
func TestGuard_CoversChildren(t *testing.T) {
	t.Parallel()
	for kind, opts := range bothGuards {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Connect(t, pgtest.Database(t))
			l := acquire(t, asleep(t, pool), "a", nil)
			exec(t, pool, "CREATE TABLE g (lease text, v int)")
			exec(t, pool, "CREATE TABLE c () INHERITS (g)")
			guard(t, pool, "g", opts)
			exec(t, pool, "CREATE TABLE late () INHERITS (g)")
			for _, sql := range []string{"INSERT INTO c VALUES ('a', 1)", "UPDATE c SET v = 2", "UPDATE g SET v = 3", "DELETE FROM g", "TRUNCATE g", "TRUNCATE c"} {
				_, err := session(t, pool).Exec(t.Context(), sql)
				wantGuard(t, sql, err)
				if err := l.InTx(t.Context(), func(tx pgx.Tx) error { return run(t, tx, sql) }); err != nil && !strings.HasPrefix(sql, "TRUNCATE") {
					t.Errorf("fenced, %s: %v", sql, err)
				}
			}
			exec(t, pool, "INSERT INTO late VALUES ('a', 1)")
			if hole := onlyHole(t, pool); hole.Table[1] != "late" || hole.Problem != pglock.GuardMissing {
				t.Errorf("hole %+v", hole)
			}
			guard(t, pool, "g", opts)
			_, err := pool.Exec(t.Context(), "DELETE FROM late")
			wantGuard(t, "guarded again", err)
		})
	}
}
