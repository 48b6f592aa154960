package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestSchema_MissingOldNewAndDropped(t *testing.T) {
	t.Parallel()
	const versions = "gatepost.schema_migrations"
	for name, c := range map[string]struct {
		fault []string
		want  []string
	}{
		"too old":       {[]string{"DELETE FROM " + versions + " WHERE version_id = (SELECT max(version_id) FROM " + versions + ")"}, []string{"schema weakens " + versions}},
		"one left out":  {[]string{"DELETE FROM " + versions + " WHERE version_id = 2"}, []string{"schema weakens " + versions}},
		"newer":         {[]string{"INSERT INTO " + versions + " (version_id, is_applied) VALUES (999, true)"}, []string{"schema note " + versions}},
		"newer, others": {[]string{"INSERT INTO " + versions + " (version_id, is_applied) VALUES (999, true)", "ALTER TABLE gatepost.leases ADD later text"}, []string{"schema note " + versions}},
		"dropped":       {[]string{"DROP TABLE gatepost.fences"}, []string{"schema weakens gatepost.fences"}},
		"leases gone":   {[]string{"DROP TABLE gatepost.leases CASCADE"}, []string{"schema weakens gatepost.leases"}},
		"a view": {
			[]string{"ALTER TABLE gatepost.waiters RENAME TO w2", "CREATE VIEW gatepost.waiters AS SELECT * FROM gatepost.w2", "ALTER TABLE gatepost.w2 SET LOGGED"},
			[]string{"schema weakens gatepost.waiters"},
		},
		"by another tool":               {[]string{"DROP TABLE " + versions}, []string{}},
		"by another tool, before goose": {[]string{"DELETE FROM " + versions + " WHERE version_id > 0"}, []string{}},
		"by another tool, and dropped":  {[]string{"DROP TABLE " + versions, "DROP TABLE gatepost.fences"}, []string{"schema weakens gatepost.fences"}},
		"another type":                  {[]string{"ALTER TABLE gatepost.leases ALTER COLUMN transitions TYPE integer"}, []string{"columns weakens gatepost.leases"}},
		"a column dropped":              {[]string{"ALTER TABLE gatepost.leases DROP COLUMN data"}, []string{"columns weakens gatepost.leases"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := healthy.database(t)
			run(t, url, c.fault...)
			if got := found(examine(t, url, patient())); !slices.Equal(got, c.want) {
				t.Errorf("it found %q, want %q", got, c.want)
			}
		})
	}
}

// A schema of any older version is told as that, and no check fails of what it lacks.
func TestSchema_OfEachOlderVersion(t *testing.T) {
	t.Parallel()
	text, err := migrations.SQL()
	if err != nil {
		t.Fatal(err)
	}
	url := healthy.copyOf(t, "template0")
	for n, part := range strings.Split(text, "\n-- 0000")[:migrations.Latest()] {
		if n == 0 {
			run(t, url, part, "CREATE TABLE gatepost.schema_migrations (id int GENERATED ALWAYS AS IDENTITY, version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())",
				"INSERT INTO gatepost.schema_migrations (version_id, is_applied) VALUES (0, true)")
			continue
		}
		run(t, url, "-- 0000"+part, fmt.Sprintf("INSERT INTO gatepost.schema_migrations (version_id, is_applied) VALUES (%d, true)", n))
		if got := found(examine(t, url, patient())); !slices.Equal(got, []string{"schema weakens gatepost.schema_migrations"}) {
			t.Errorf("of version %d it found %q", n, got)
		}
	}
}

// Where down can't go, since what it undoes is gone, the remedy is another way to begin anew.
func TestSchema_RebuildWorksWhateverIsGone(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, "ALTER TABLE gatepost.leases DROP COLUMN token")
	remedy := result(t, examine(t, url, patient()), "columns").Findings[0].Remedy
	const drop = "DROP SCHEMA gatepost CASCADE"
	if len(remedy) != 3 || remedy[1] != `psql "$DATABASE_URL" -c '`+drop+`' && gatepost migrate up` {
		t.Errorf("the remedy is %q", remedy)
	}
	run(t, url, drop)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("after the remedy it finds %q", got)
	}
}

func TestSchema_MissingIsOneFindingAndSkipsTheRest(t *testing.T) {
	t.Parallel()
	url := healthy.copyOf(t, "template0")
	r := examine(t, url, doctor.Options{Role: "postgres"})
	if got := found(r); !slices.Equal(got, []string{"schema weakens schema gatepost"}) {
		t.Errorf("it found %q", got)
	}
	if f := result(t, r, "schema").Findings[0]; !slices.Equal(f.Remedy, []string{"gatepost migrate up"}) {
		t.Errorf("the remedy is %q", f.Remedy)
	}
	if s := result(t, r, "lapsed").Skipped; s != "gatepost.leases is missing" {
		t.Errorf("lapsed was skipped: %q", s)
	}
	if s := result(t, r, "columns").Skipped; s == "" {
		t.Error("columns was not skipped")
	}
}

// Names that another search_path makes shorter or hides are found all the same.
func TestSchema_NothingDependsOnSearchPath(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, "CREATE SCHEMA trap", "CREATE FUNCTION trap.never(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
		"CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.never)", "ALTER TABLE gatepost.fences SET UNLOGGED",
		"CREATE FUNCTION trap.never(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
		"CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = text, FUNCTION = trap.never)",
		"CREATE TABLE trap.pg_index ()", "CREATE FUNCTION trap.age(xid) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'")
	for _, path := range []string{"gatepost,public", "pg_catalog,gatepost", "nowhere", "trap,pg_catalog"} {
		if got := found(examine(t, url+"&search_path="+path, patient())); !slices.Equal(got, []string{"unlogged weakens gatepost.fences"}) {
			t.Errorf("with search_path %s it found %q", path, got)
		}
	}
}

// The inventory is what the migrations make, table by table: a migration that changes a
// table has to change it too. Tables that it doesn't know are goose's.
func TestInventory_IsWhatTheMigrationsMake(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	tables, err := doctordb.New(connect(t, url)).TableList(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if !slices.Contains(doctor.InventoryNames(), table.Name) && table.Name != "schema_migrations" {
			t.Errorf("%s, of version %d, is not in the inventory", table.Name, migrations.Latest())
		}
	}
}

// No statement reads a nonce, nor the reply or the key of a call.
func TestQueries_ReadNoSecret(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{doctordb.LeaseLockers, doctordb.LeaseLapsed, doctordb.LeaseOverlong, doctordb.LeaseClock, doctordb.KeyRunning, doctordb.KeyBacklog} {
		for _, word := range []string{"nonce", "k.key", "body", "attempt", "l.*", "k.*"} {
			if strings.Contains(sql, word) {
				t.Errorf("it reads %s: %s", word, sql)
			}
		}
	}
}
