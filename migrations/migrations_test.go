package migrations_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// envMigrate makes the test binary migrate that database and exit: a process of
// its own, as at the start of a service.
const envMigrate = "GATEPOST_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if url := os.Getenv(envMigrate); url != "" {
		os.Exit(migrate(url))
	}
	pgtest.Main(m)
}

func migrate(url string) int {
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		err = migrations.Up(context.Background(), pool)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// objects lists all relations of the schema gatepost but the version table and
// what belongs to it.
func objects(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return value[string](t, pool, `SELECT coalesce(string_agg(relname || ':' || relkind::text, ' ' ORDER BY relname), '')
		FROM pg_class WHERE relnamespace = to_regnamespace('gatepost') AND relname NOT LIKE 'schema_migrations%'`)
}

func TestUp_TwiceAndDownAndUpAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	for range 2 {
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	first := objects(t, pool)
	for _, want := range []string{"leases:r", "fences:r", "leases_token_key:i"} {
		if !strings.Contains(first, want) {
			t.Errorf("%s is missing in %q", want, first)
		}
	}
	for range 2 {
		if err := migrations.Down(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	if left := objects(t, pool); left != "" {
		t.Errorf("after Down there is still %q", left)
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if again := objects(t, pool); again != first {
		t.Errorf("after Down and Up there is %q, want %q", again, first)
	}
}

// definitions describes everything in the schema gatepost but the version table.
const definitions = `SELECT coalesce(string_agg(made.line, E'\n' ORDER BY made.line), '') FROM (
	SELECT concat_ws(' ', 'table', c.relname, c.relkind, c.relpersistence, c.reloptions, c.relacl, obj_description(c.oid, 'pg_class')) AS line
	FROM pg_class AS c WHERE c.relnamespace = 'gatepost'::regnamespace
	UNION ALL
	SELECT concat_ws(' ', 'column', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
		pg_get_expr(d.adbin, d.adrelid), a.attacl, col_description(a.attrelid, a.attnum))
	FROM pg_attribute AS a
	JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r' AND c.relnamespace = 'gatepost'::regnamespace
	LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	WHERE a.attnum > 0 AND NOT a.attisdropped
	UNION ALL
	SELECT concat_ws(' ', 'constraint', r.conrelid::regclass, r.contypid::regtype, r.conname, pg_get_constraintdef(r.oid))
	FROM pg_constraint AS r WHERE r.connamespace = 'gatepost'::regnamespace
	UNION ALL
	SELECT pg_get_indexdef(i.indexrelid)
	FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace = 'gatepost'::regnamespace
	UNION ALL
	SELECT concat_ws(' ', 'domain', t.typname, format_type(t.typbasetype, t.typtypmod), t.typacl, obj_description(t.oid, 'pg_type'))
	FROM pg_type AS t WHERE t.typtype = 'd' AND t.typnamespace = 'gatepost'::regnamespace
	UNION ALL
	SELECT concat_ws(' ', pg_get_functiondef(f.oid), f.proacl, obj_description(f.oid, 'pg_proc'))
	FROM pg_proc AS f WHERE f.pronamespace = 'gatepost'::regnamespace
	UNION ALL
	SELECT pg_get_triggerdef(t.oid)
	FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND c.relnamespace = 'gatepost'::regnamespace
) AS made WHERE made.line !~ 'schema_migrations'`

// One step down leads to what was there one step before, to the last comment.
func TestDown_EachStepUndoesItsUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	if _, err := pool.Exec(t.Context(), "CREATE SCHEMA gatepost"); err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	steps, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithTableName("gatepost.schema_migrations"))
	if err != nil {
		t.Fatal(err)
	}
	for range migrations.Latest() {
		before := value[string](t, pool, definitions)
		step, err := steps.UpByOne(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if value[string](t, pool, definitions) == before {
			t.Errorf("%s: nothing of it is seen here", step.Source.Path)
		}
		if _, err := steps.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := value[string](t, pool, definitions); after != before {
			t.Errorf("%s: up and down leaves\n%s\nwhere there was\n%s", step.Source.Path, after, before)
		}
		if _, err := steps.UpByOne(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A clock that was set back between a renewal and a release leaves a row that the
// constraint of an older version refuses.
func TestDown_WhateverTheRowsAre(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))
	_, err := pool.Exec(t.Context(), `INSERT INTO gatepost.leases (name, token, acquired_at, renewed_at, expires_at, transitions)
		VALUES ('n', 1, clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '1 minute', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Down(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

// What another tool made stays that tool's: Up would make it twice, and leave a version
// table that says nothing was made.
func TestUp_RefusesWhatAnotherToolMade(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	sql, err := migrations.SQL()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pool); !errors.Is(err, migrations.ErrOtherTool) {
		t.Errorf("Up is %v", err)
	}
	if value[bool](t, pool, `SELECT to_regclass('gatepost.schema_migrations') IS NOT NULL`) {
		t.Error("Up made a version table")
	}
	if other, err := migrations.OtherTool(t.Context(), pool); !other || err != nil {
		t.Errorf("OtherTool is %v, %v", other, err)
	}
	if other, err := migrations.OtherTool(t.Context(), pgtest.Connect(t, pgtest.Owner(t, pgtest.Database(t)))); other || err != nil {
		t.Errorf("OtherTool of a database that was migrated is %v, %v", other, err)
	}
}

func TestDown_OfAnEmptyDatabaseChangesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	if err := migrations.Down(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if value[bool](t, pool, `SELECT to_regnamespace('gatepost') IS NOT NULL`) {
		t.Error("Down created the schema")
	}
}

func TestUp_EightProcessesAtOnceAllSucceed(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var processes []*exec.Cmd
	var output [8]strings.Builder
	for i := range 8 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), envMigrate+"="+url)
		cmd.Stderr = &output[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
	}
	for i, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, output[i].String())
		}
	}
	pool := pgtest.Connect(t, url)
	applied := value[int](t, pool, `SELECT count(*) FROM gatepost.schema_migrations WHERE version_id > 0`)
	if int64(applied) != migrations.Latest() {
		t.Errorf("%d migrations are recorded, want each of the %d once", applied, migrations.Latest())
	}
}

// Closer together than processes start: all have their connections already.
func TestUp_SimultaneousCallsAllSucceed(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	var calls sync.WaitGroup
	start := make(chan struct{})
	for range 16 {
		pool := pgtest.Connect(t, url)
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls.Go(func() {
			<-start
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	calls.Wait()
}

func TestUp_WorksWithOneConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t)+"&pool_max_conns=1")
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

func TestUp_NeedsNoRightOnTheDatabaseOnceTheSchemaIsThere(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	role := "owner_" + value[string](t, pool, `SELECT md5(random()::text)`)
	for _, sql := range []string{"CREATE ROLE " + role, "CREATE SCHEMA gatepost AUTHORIZATION " + role} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	owner, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		owner.Close()
		ctx := context.WithoutCancel(t.Context())
		_, _ = pool.Exec(ctx, "DROP OWNED BY "+role+" CASCADE")
		_, _ = pool.Exec(ctx, "DROP ROLE "+role)
	})
	if err := migrations.Up(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
}

func TestUp_LeavesTheApplicationsOwnMigrationsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	app := fstest.MapFS{
		"00001_app.sql": {Data: []byte("-- +goose Up\nCREATE TABLE app (id int);\n-- +goose Down\nDROP TABLE app;\n")},
		"00007_app.sql": {Data: []byte("-- +goose Up\nCREATE TABLE app7 (id int);\n-- +goose Down\nDROP TABLE app7;\n")},
	}
	provider := func(files fs.FS) *goose.Provider {
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		p, err := goose.NewProvider(goose.DialectPostgres, db, files)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if _, err := provider(app).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if version, err := provider(app).GetDBVersion(t.Context()); err != nil || version != 7 {
		t.Errorf("the application is at version %d (%v), want 7", version, err)
	}
	if err := migrations.Down(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM pg_class WHERE relname IN ('app', 'app7', 'goose_db_version')`); n != 3 {
		t.Errorf("%d of the application's 3 tables are left", n)
	}
}

func TestStatus_OnlyReads(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyDatabase(t))
	all, err := migrations.Status(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Applied {
			t.Errorf("%s is applied to an empty database", m.Name)
		}
	}
	if value[bool](t, pool, `SELECT to_regnamespace('gatepost') IS NOT NULL`) {
		t.Error("Status created the schema")
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	all, err = migrations.Status(t.Context(), pool)
	if err != nil || int64(len(all)) != migrations.Latest() {
		t.Fatalf("%d migrations, %v", len(all), err)
	}
	for _, m := range all {
		if !m.Applied || m.AppliedAt.IsZero() {
			t.Errorf("%+v, want it applied", m)
		}
	}
}

func TestSQL_MakesWhatUpMakes(t *testing.T) {
	t.Parallel()
	byHand, byUp := pgtest.Connect(t, pgtest.EmptyDatabase(t)), pgtest.Connect(t, pgtest.EmptyDatabase(t))
	text, err := migrations.SQL()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := byHand.Exec(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), byUp); err != nil {
		t.Fatal(err)
	}
	if got, want := objects(t, byHand), objects(t, byUp); got != want {
		t.Errorf("plain SQL makes %q, Up makes %q", got, want)
	}
}

// The fence depends on this index being plain: see rule F.
func TestLeases_TokenIndexIsPlain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if !value[bool](t, pool, `SELECT indisunique AND indimmediate AND indisvalid AND indpred IS NULL
			AND indexprs IS NULL AND indnatts = indnkeyatts
			AND pg_get_indexdef(indexrelid) LIKE '%(name, slot, token)'
		FROM pg_index WHERE indexrelid = 'gatepost.leases_token_key'::regclass`) {
		t.Error("leases_token_key is not a plain unique index on (name, slot, token)")
	}
	if p := value[string](t, pool, `SELECT relpersistence::text FROM pg_class WHERE oid = 'gatepost.leases'::regclass`); p != "p" {
		t.Errorf("gatepost.leases is %q, want it logged", p)
	}
}
