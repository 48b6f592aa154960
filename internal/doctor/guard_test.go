package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestGuards_EachHoleIsFoundAndHealed(t *testing.T) {
	t.Parallel()
	plain := []string{"CREATE TABLE orders (id bigint, customer text)", "SELECT gatepost.guard_table('orders', 'it''s')"}
	byColumn := []string{plain[0], "SELECT gatepost.guard_table('orders', lease_column => 'customer')"}
	parts := []string{
		"CREATE TABLE orders (id bigint, customer text) PARTITION BY RANGE (id)", "CREATE TABLE p1 PARTITION OF orders FOR VALUES FROM (0) TO (9)",
		"SELECT gatepost.guard_table('orders', 'import')",
	}
	for name, c := range map[string]struct {
		before, fault []string
		want          []string
	}{
		"none":               {plain, nil, nil},
		"none, by a column":  {byColumn, nil, nil},
		"none in partitions": {parts, nil, nil},
		"disabled":           {plain, []string{"ALTER TABLE orders DISABLE TRIGGER gatepost_guard"}, []string{`guard weakens "public"."orders"`}},
		"for replicas":       {plain, []string{"ALTER TABLE orders ENABLE REPLICA TRIGGER gatepost_guard"}, []string{`guard weakens "public"."orders"`}},
		"in a partition":     {parts, []string{"ALTER TABLE p1 DISABLE TRIGGER ALL"}, []string{`guard weakens "public"."orders"`}},
		"partition later": {
			parts,
			[]string{"CREATE TABLE p2 (id bigint, customer text)", "ALTER TABLE orders ATTACH PARTITION p2 FOR VALUES FROM (10) TO (19)"},
			[]string{`guard weakens "public"."orders"`},
		},
		"child later":                   {plain, []string{"CREATE TABLE archive () INHERITS (orders)"}, []string{`guard weakens "public"."orders"`}},
		"rows dropped":                  {byColumn, []string{"DROP TRIGGER gatepost_guard_update ON orders"}, []string{`guard weakens "public"."orders"`}},
		"statements dropped":            {byColumn, []string{"DROP TRIGGER gatepost_guard ON orders"}, []string{`guard weakens "public"."orders"`}},
		"a parent's statements dropped": {parts, []string{"DROP TRIGGER gatepost_guard ON orders"}, []string{`guard weakens "public"."orders"`}},
		"a partition's dropped":         {parts, []string{"DROP TRIGGER gatepost_guard ON p1"}, []string{`guard weakens "public"."orders"`}},
		"for less": {
			byColumn,
			[]string{"CREATE OR REPLACE TRIGGER gatepost_guard_insert AFTER INSERT ON orders FOR EACH ROW WHEN (false) EXECUTE FUNCTION gatepost.guard_row('column', 'customer')"},
			[]string{`guard weakens "public"."orders"`},
		},
		"renamed":                        {byColumn, []string{"ALTER TABLE orders RENAME customer TO client"}, []string{`guard weakens "public"."orders"`}},
		"renamed to a name with a quote": {byColumn, []string{`ALTER TABLE orders RENAME customer TO "it's"`}, []string{`guard weakens "public"."orders"`}},
		"by a column with a quote": {
			[]string{`CREATE TABLE orders (id bigint, "it's" text)`, `SELECT gatepost.guard_table('orders', lease_column => 'it''s')`},
			[]string{"ALTER TABLE orders DISABLE TRIGGER gatepost_guard"},
			[]string{`guard weakens "public"."orders"`},
		},
		"renamed, in partitions": {
			[]string{parts[0], parts[1], "SELECT gatepost.guard_table('orders', lease_column => 'customer')"},
			[]string{"ALTER TABLE orders RENAME customer TO client"},
			[]string{`guard weakens "public"."orders"`},
		},
		"a parent later": {
			plain,
			[]string{"CREATE TABLE base (id bigint)", "ALTER TABLE orders INHERIT base"},
			[]string{`guard weakens "public"."orders"`},
		},
		"attached with another guard": {
			parts,
			[]string{
				"CREATE TABLE p2 (id bigint, customer text)", "SELECT gatepost.guard_table('p2', 'another')",
				"ALTER TABLE orders ATTACH PARTITION p2 FOR VALUES FROM (10) TO (19)",
			},
			[]string{`guard weakens "public"."orders"`},
		},
		"impostor": {
			[]string{plain[0], "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"},
			[]string{"CREATE TRIGGER gatepost_guard BEFORE INSERT ON orders EXECUTE FUNCTION nothing()"},
			[]string{`guard weakens "public"."orders"`},
		},
		"impostor without arguments": {
			plain,
			[]string{"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT ON orders EXECUTE FUNCTION gatepost.guard_statement()"},
			[]string{`guard weakens "public"."orders"`},
		},
		"impostor in a guard": {
			byColumn,
			[]string{
				"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
				"CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT ON orders EXECUTE FUNCTION nothing()",
			},
			[]string{`guard weakens "public"."orders"`},
		},
		"applied": {
			plain,
			[]string{
				"CREATE SUBSCRIPTION s" + "%[1]s CONNECTION '' PUBLICATION p WITH (connect = false)",
				"INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) SELECT oid, 'orders'::regclass, 'r' FROM pg_subscription WHERE subname = 's%[1]s'",
			},
			[]string{"subscribed weakens public.orders"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			statements := slices.Concat(c.before, c.fault)
			url := healthy.database(t)
			for i, s := range statements {
				if strings.Contains(s, "%[1]s") {
					statements[i] = fmt.Sprintf(s, strings.TrimPrefix(roleName(url), "role_"))
				}
			}
			run(t, url, statements...)
			r := examine(t, url, patient())
			if got := found(r); !slices.Equal(got, append([]string{}, c.want...)) {
				t.Fatalf("it found %q, want %q", got, c.want)
			}
			heal(t, url, r)
			if left := found(examine(t, url, patient())); len(left) != 0 && name != "applied" {
				t.Errorf("after its remedies it finds %q", left)
			}
		})
	}
}

// Which column names the lease now, nobody knows but the table's owner. Each of the ways
// that are told works.
func TestGuards_AColumnThatWasDropped(t *testing.T) {
	t.Parallel()
	for i := 1; i <= 3; i++ {
		url := healthy.database(t)
		run(t, url, "CREATE TABLE orders (id bigint, customer text, client text)", "SELECT gatepost.guard_table('orders', lease_column => 'customer')",
			"ALTER TABLE orders DROP COLUMN customer CASCADE")
		f := result(t, examine(t, url, patient()), "guard").Findings
		if len(f) != 1 || !strings.Contains(f[0].Text, `"customer"`) || !strings.Contains(f[0].Text, "dropped") || len(f[0].Remedy) != 4 {
			t.Fatalf("it says %+v", f)
		}
		run(t, url, strings.ReplaceAll(strings.TrimPrefix(f[0].Remedy[i], "-- "), "COLUMN", "client"))
		if got := found(examine(t, url, patient())); len(got) != 0 {
			t.Errorf("after %q it finds %q", f[0].Remedy[i], got)
		}
	}
}

// The holes of one guard with one remedy are one finding, that says how many there are.
func TestGuards_ManyPartitionsAreOneFinding(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, "CREATE TABLE orders (id int) PARTITION BY LIST (id)", "SELECT gatepost.guard_table('orders', 'a')")
	for n := range 6 {
		run(t, url, fmt.Sprintf("CREATE TABLE p%d PARTITION OF orders FOR VALUES IN (%[1]d)", n))
	}
	run(t, url, "ALTER TABLE p0 DISABLE TRIGGER gatepost_guard_insert", "SELECT gatepost.guard_table('orders', 'a')", "DROP TABLE p0",
		"CREATE TABLE p0 PARTITION OF orders FOR VALUES IN (0)", "CREATE TABLE p6 PARTITION OF orders FOR VALUES IN (6)")
	for n := 1; n < 6; n++ {
		run(t, url, fmt.Sprintf("DROP TRIGGER gatepost_guard ON p%d", n))
	}
	r := examine(t, url, patient())
	f := result(t, r, "guard").Findings
	if len(f) != 1 || f[0].Object != `"public"."orders"` || !strings.HasPrefix(f[0].Text, `7 tables ("public"."p0", "public"."p1", "public"."p2" and 4 more) `) {
		t.Fatalf("it says %+v", f)
	}
	heal(t, url, r)
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("after its remedy it finds %q", got)
	}
}

// The owner of a guarded table can take the guard off.
func TestOwner_OfGuardedTables(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	role := makeRole(t, url, "")
	grant(t, url, role)
	run(t, url, "CREATE TABLE orders (id bigint)", "ALTER TABLE orders OWNER TO "+role)
	opts := patient()
	opts.Role = role
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("of an owner without a guard it found %q", got)
	}
	run(t, url, "SELECT gatepost.guard_table('orders', 'import')")
	r := examine(t, url, opts)
	if got := found(r); !slices.Equal(got, []string{"owner note role " + role}) || !strings.Contains(result(t, r, "owner").Findings[0].Text, "public.orders") {
		t.Errorf("of an owner it found %q", got)
	}
}

func TestReplicationRole_WhoMaySetIt(t *testing.T) {
	t.Parallel()
	own := &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on"}}
	t.Cleanup(func() { _ = own.stop() })
	url := own.database(t)
	var version int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 150000 {
		return // there is no such right
	}
	run(t, url, "CREATE ROLE app", "GRANT SET ON PARAMETER session_replication_role TO app", "GRANT SET ON PARAMETER session_replication_role TO PUBLIC")
	r := examine(t, url, patient())
	if got, want := found(r), []string{"replication-role note all roles", "replication-role note role app"}; !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
	heal(t, url, r)
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("after its remedies it finds %q", got)
	}
}
