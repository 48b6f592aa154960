package pglock_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestGuardTable_RefusesWhatItCannotGuard(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	for _, sql := range []string{
		"CREATE TABLE g (lease text, at timestamptz, kind char(3), v int)", "CREATE VIEW v AS SELECT 1 AS lease", "CREATE SEQUENCE s",
	} {
		exec(t, pool, sql)
	}
	long := strings.Repeat("x", 64)
	for what, test := range map[string]struct {
		table pgx.Identifier
		opts  pglock.GuardOptions
		want  error
		part  string
	}{
		"no table":          {nil, byLease("a"), pglock.ErrInvalidGuard, "no name"},
		"empty name":        {pgx.Identifier{""}, byLease("a"), pglock.ErrInvalidGuard, "not empty"},
		"NUL":               {pgx.Identifier{"g\x00"}, byLease("a"), pglock.ErrInvalidGuard, "NUL"},
		"long name":         {pgx.Identifier{long}, byLease("a"), pglock.ErrInvalidGuard, "64 bytes"},
		"long column":       {pgx.Identifier{"g"}, byColumn(long), pglock.ErrInvalidGuard, "64 bytes"},
		"nothing":           {pgx.Identifier{"g"}, pglock.GuardOptions{}, pglock.ErrInvalidGuard, "one of Lease and LeaseColumn"},
		"both":              {pgx.Identifier{"g"}, pglock.GuardOptions{Lease: "a", LeaseColumn: "lease"}, pglock.ErrInvalidGuard, "one of Lease and LeaseColumn"},
		"long lease":        {pgx.Identifier{"g"}, byLease(strings.Repeat("x", 256)), pglock.ErrInvalidName, "256 bytes"},
		"absent":            {pgx.Identifier{"nowhere"}, byLease("a"), pglock.ErrInvalidGuard, "there is no such table"},
		"absent schema":     {pgx.Identifier{"nowhere", "g"}, byLease("a"), pglock.ErrInvalidGuard, "there is no such table"},
		"too many parts":    {pgx.Identifier{"a", "b", "c", "d", "e"}, byLease("a"), pglock.ErrInvalidGuard, ""},
		"a view":            {pgx.Identifier{"v"}, byLease("a"), pglock.ErrInvalidGuard, "is no table"},
		"a sequence":        {pgx.Identifier{"s"}, byLease("a"), pglock.ErrInvalidGuard, "is no table"},
		"a lease table":     {pgx.Identifier{"gatepost", "leases"}, byLease("a"), pglock.ErrInvalidGuard, "own tables"},
		"a system table":    {pgx.Identifier{"pg_catalog", "pg_class"}, byLease("a"), nil, "permission denied"},
		"absent column":     {pgx.Identifier{"g"}, byColumn("nowhere"), pglock.ErrInvalidGuard, "no column nowhere"},
		"a system column":   {pgx.Identifier{"g"}, byColumn("ctid"), pglock.ErrInvalidGuard, "no column ctid"},
		"column of a time":  {pgx.Identifier{"g"}, byColumn("at"), pglock.ErrInvalidGuard, "can't name a lease"},
		"column of blanks":  {pgx.Identifier{"g"}, byColumn("kind"), pglock.ErrInvalidGuard, "can't name a lease"},
		"injection, table":  {pgx.Identifier{`g"; DROP TABLE g; --`}, byLease("a"), pglock.ErrInvalidGuard, "there is no such table"},
		"injection, column": {pgx.Identifier{"g"}, byColumn(`lease"; DROP TABLE g; --`), pglock.ErrInvalidGuard, "no column"},
	} {
		err := pglock.GuardTable(t.Context(), pool, test.table, test.opts)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.part) {
			t.Errorf("%s: %v, want %v and %q", what, err, test.want, test.part)
		}
	}
	own := value[[]string](t, pool, "SELECT array_agg(relname::text) FROM pg_class WHERE relnamespace = 'gatepost'::regnamespace AND relkind = 'r'")
	for _, table := range own {
		err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{"gatepost", table}, byLease("a"))
		if !errors.Is(err, pglock.ErrInvalidGuard) || !strings.Contains(err.Error(), "own tables") {
			t.Errorf("Gatepost's %s: %v", table, err)
		}
	}
	if guards, err := pglock.Guards(t.Context(), pool); err != nil || guards != nil {
		t.Errorf("the guards are %+v, %v; want none", guards, err)
	}
	exec(t, pool, "INSERT INTO g VALUES ('x')")
}

// Names are names, whatever is in them.
func TestGuardTable_TakesHostileNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	for i, name := range []string{`a"b`, "it's", `%s %I $1 \`, "é\n", strings.Repeat("x", 63), "SELECT"} {
		table := pgx.Identifier{"public", name}
		exec(t, pool, "CREATE TABLE "+table.Sanitize()+" ("+pgx.Identifier{name}.Sanitize()+" text)")
		lease := strings.Repeat(name, 3)
		l := acquire(t, asleep(t, pool), lease, nil)
		for _, opts := range []pglock.GuardOptions{byLease(lease), byColumn(name)} {
			if err := pglock.GuardTable(t.Context(), pool, table, opts); err != nil {
				t.Fatal(err)
			}
			_, err := pool.Exec(t.Context(), "INSERT INTO "+table.Sanitize()+" VALUES ($1)", lease)
			wantGuard(t, name, err)
			if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO "+table.Sanitize()+" VALUES ($1)", lease)
				return err
			}); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		guards, err := pglock.Guards(t.Context(), pool)
		if err != nil || len(guards) != i+1 {
			t.Errorf("the guards are %+v, %v", guards, err)
		}
	}
}

// Again changes nothing; with another lease it is that one's; many at once make one,
// whatever the sessions' isolation is.
func TestGuardTable_CanBeCalledAgain(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			canBeGuardedAgain(t, poolWith(t, pgtest.Database(t), setting("default_transaction_isolation", string(level))))
		})
	}
}

func canBeGuardedAgain(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, "CREATE TABLE g (lease text, v int) PARTITION BY LIST (v)")
	exec(t, pool, "CREATE TABLE g1 PARTITION OF g DEFAULT")
	for _, opts := range []pglock.GuardOptions{byLease("a"), byLease("b"), byColumn("lease")} {
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{"g"}, opts); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		guards, err := pglock.Guards(t.Context(), pool)
		if err != nil || len(guards) != 1 || guards[0].Lease != opts.Lease || guards[0].LeaseColumn != opts.LeaseColumn || guards[0].Holes != nil {
			t.Errorf("the guards are %+v, %v; want %+v", guards, err, opts)
		}
		if n := value[int](t, pool, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'gatepost_guard%'"); n != 8 {
			t.Errorf("%d triggers, want 4 a table", n)
		}
	}
}

// A partition with a guard of its own is not taken over silently.
func TestGuardTable_RefusesAPartitionWithAnotherGuard(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE g (v int) PARTITION BY LIST (v)")
	exec(t, pool, "CREATE TABLE g1 PARTITION OF g DEFAULT")
	guard(t, pool, "g1", byLease("a"))
	err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{"g"}, byLease("b"))
	wantErr(t, err, pglock.ErrInvalidGuard)
	if !strings.Contains(err.Error(), "has a guard of its own") {
		t.Error(err)
	}
	guard(t, pool, "g", byLease("a"))
	if found := holes(t, pool); found != nil {
		t.Errorf("holes %+v", found)
	}
}

func TestGuards_OfADatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	exec(t, pool, "CREATE TABLE g (v int)")
	_, list := pglock.Guards(t.Context(), pool)
	_, remove := pglock.UnguardTable(t.Context(), pool, pgx.Identifier{"g"})
	for what, err := range map[string]error{
		"Guards": list, "UnguardTable": remove, "GuardTable": pglock.GuardTable(t.Context(), pool, pgx.Identifier{"g"}, byLease("a")),
	} {
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok || !errors.Is(err, pglock.ErrNotMigrated) {
			t.Errorf("%s: %v, want ErrNotMigrated", what, err)
		}
	}
}
