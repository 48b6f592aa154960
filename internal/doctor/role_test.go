package doctor_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
)

// as is a URL under another role.
func as(t *testing.T, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// dropRole takes a role back after the test, from its database first.
func makeRole(t *testing.T, url string, options string) string {
	t.Helper()
	role := roleName(url)
	run(t, url, "CREATE ROLE "+role+" LOGIN "+options)
	return role
}

func TestReadOnlyRole_SeesWhatItMayAndSaysTheRest(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	role := makeRole(t, database, "")
	run(t, database, "ALTER TABLE gatepost.leases SET UNLOGGED", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", insertLease("old", "1", "-3 hours"))
	lease := acquired(t, database, "busy")[0]
	fence(t, connect(t, database), lease)

	// Nothing but the catalogs.
	r := examine(t, as(t, database, role), strict())
	if got := found(r); !slices.Equal(got, []string{"unlogged weakens gatepost.leases"}) {
		t.Errorf("it found %q", got)
	}
	for _, check := range []string{"schema", "guard", "prepared", "fenced", "lapsed", "clock-back", "key-backlog", "key-running", "horizon", "hot-share"} {
		if len(result(t, r, check).Unseen) == 0 {
			t.Errorf("%s doesn't say that it saw nothing: %+v", check, result(t, r, check))
		}
	}
	// What it asks for, and no more, is what it needs.
	for _, result := range r.Results {
		for _, u := range result.Unseen {
			if u.Text == "" || len(u.Grants) == 0 || strings.Contains(strings.Join(u.Grants, " "), "nonce") {
				t.Errorf("%s says %+v", result.Check, u)
			}
			if result.Check != "horizon" { // statistics come below
				run(t, database, u.Grants...)
			}
		}
	}
	r = examine(t, as(t, database, role), strict())
	if got := found(r); !slices.Equal(got, []string{"unlogged weakens gatepost.leases", "lapsed note gatepost.leases"}) {
		t.Errorf("with SELECT it found %q", got)
	}
	if r.Unseen() != 2 || len(result(t, r, "fenced").Unseen) != 1 || len(result(t, r, "horizon").Unseen) != 1 {
		t.Errorf("with SELECT it saw too much or too little: %+v", r.Results)
	}
	run(t, database, result(t, r, "fenced").Unseen[0].Grants...)
	r = examine(t, as(t, database, role), strict())
	if got := found(r); r.Unseen() != 0 || !slices.Contains(got, "fenced weakens lease busy") {
		t.Errorf("with pg_read_all_stats it found %q, and %d saw a part only", got, r.Unseen())
	}
	if err := execute(t.Context(), as(t, database, role), "SELECT nonce FROM gatepost.leases"); err == nil {
		t.Error("the grants let it read a nonce")
	}
	if err := execute(t.Context(), as(t, database, role), "SELECT body FROM gatepost.idempotency_keys"); err == nil {
		t.Error("the grants let it read a reply")
	}
}

// grant gives a role what migrations.Grants says.
func grant(t *testing.T, url, role string) {
	t.Helper()
	sql, err := migrations.Grants(role)
	if err != nil {
		t.Fatal(err)
	}
	run(t, url, sql)
}

// What the check asks for is what `gatepost migrate grants` gives, no less and no more.
func TestPrivileges_AreThoseOfGrants(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	role := makeRole(t, database, "")
	grant(t, database, role)
	rows, err := connect(t, database).Query(t.Context(), `
		SELECT g.privilege_type || ' ' || c.relname || ' ' FROM pg_class AS c, aclexplode(c.relacl) AS g WHERE g.grantee = $1::regrole
		UNION ALL
		SELECT g.privilege_type || ' ' || a.attrelid::regclass::name || ' ' || a.attname FROM pg_attribute AS a, aclexplode(a.attacl) AS g
		WHERE g.grantee = $1::regrole`, role)
	if err != nil {
		t.Fatal(err)
	}
	granted, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	needs := doctor.Needs()
	for i := range granted {
		granted[i] = strings.ReplaceAll(granted[i], "gatepost.", "")
	}
	slices.Sort(granted)
	slices.Sort(needs)
	if !slices.Equal(granted, needs) {
		t.Errorf("granted is\n%q, asked for is\n%q", granted, needs)
	}
	opts := patient()
	opts.Role = role
	if got := found(examine(t, database, opts)); len(got) != 0 {
		t.Errorf("of a role with the grants it found %q", got)
	}
}

func TestPrivileges_OfTheApplicationsRole(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	role := makeRole(t, database, "")
	opts := patient()
	opts.Role = role
	r := examine(t, database, opts)
	if f := result(t, r, "privilege").Findings; len(found(r)) != 1 || len(f) != 1 || len(f[0].Remedy) != 1+1+7+3 {
		t.Errorf("of a role without a privilege it found %q: %+v", found(r), f)
	}
	heal(t, database, r)
	if got := found(examine(t, database, opts)); len(got) != 0 {
		t.Errorf("after its remedies it finds %q", got)
	}
	run(t, database, "REVOKE UPDATE (holder), INSERT ON gatepost.leases FROM "+role)
	r = examine(t, database, opts)
	want := []string{`GRANT INSERT, UPDATE (holder) ON gatepost.leases TO "` + role + `";`}
	f := result(t, r, "privilege").Findings
	if len(f) != 1 || f[0].Severity != doctor.Weakens || f[0].Text != "It lacks INSERT, UPDATE (holder) ON gatepost.leases: what needs that is refused." ||
		!slices.Equal(f[0].Remedy[1:], want) {
		t.Errorf("it found %+v", f)
	}
	heal(t, database, r)

	run(t, database, "ALTER TABLE gatepost.fences OWNER TO "+role)
	if got := found(examine(t, database, opts)); !slices.Equal(got, []string{"owner note role " + role}) {
		t.Errorf("of an owner it found %q", got)
	}
	owners := role + "_owners"
	run(t, database, "CREATE ROLE "+owners, "ALTER TABLE gatepost.fences OWNER TO "+owners, "GRANT "+owners+" TO "+role)
	if got := found(examine(t, database, opts)); !slices.Equal(got, []string{"owner note role " + role}) {
		t.Errorf("of a member of the owner it found %q", got)
	}
	run(t, database, "ALTER TABLE gatepost.fences OWNER TO postgres", "ALTER ROLE "+role+" SUPERUSER")
	r = examine(t, database, opts)
	if got := found(r); !slices.Equal(got, []string{"owner note role " + role}) || !strings.Contains(result(t, r, "owner").Findings[0].Text, "superuser") {
		t.Errorf("of a superuser it found %q", got)
	}
	opts.Role = "no body"
	r = examine(t, database, opts)
	if got := found(r); !slices.Equal(got, []string{"privilege weakens role no body"}) {
		t.Errorf("of no role it found %q", got)
	}
}

func TestPrivileges_OfARoleThatOnlyFences(t *testing.T) {
	t.Parallel()
	database := healthy.database(t)
	role := makeRole(t, database, "")
	opts := patient()
	opts.Role, opts.FenceOnly = role, true
	r := examine(t, database, opts)
	if f := result(t, r, "privilege").Findings; len(f) != 1 || len(f[0].Remedy) != 1+1+3 || !strings.Contains(f[0].Remedy[0], "--fence-only") {
		t.Errorf("of a role without a privilege it found %+v", f)
	}
	sql, err := migrations.FenceOnlyGrants(role)
	if err != nil {
		t.Fatal(err)
	}
	run(t, database, sql)
	if got := found(examine(t, database, opts)); len(got) != 0 {
		t.Errorf("with the grants it finds %q", got)
	}
}

// Each is what the role needs, and one privilege more, which the remedy takes back.
func TestExcess_FindsWhatARoleNeednt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fenceOnly bool
		fault     string // $role stands for the role
		harmless  bool
	}{
		"all tables":               {fault: "GRANT ALL ON ALL TABLES IN SCHEMA gatepost TO $role"},
		"empty the leases":         {fault: "GRANT TRUNCATE ON gatepost.leases TO $role"},
		"a trigger on the keys":    {fault: "GRANT TRIGGER ON gatepost.idempotency_keys TO $role"},
		"foreign keys to leases":   {fault: "GRANT REFERENCES ON gatepost.leases TO $role"},
		"the versions":             {fault: "GRANT DELETE ON gatepost.schema_migrations TO $role"},
		"imports changed":          {fault: "GRANT UPDATE ON gatepost.imports TO $role"},
		"functions of its own":     {fault: "GRANT CREATE ON SCHEMA gatepost TO $role"},
		"the versions read":        {fault: "GRANT SELECT ON gatepost.schema_migrations TO $role", harmless: true},
		"fencing: read all":        {fenceOnly: true, fault: "GRANT SELECT ON gatepost.leases TO $role"},
		"fencing: read nonces":     {fenceOnly: true, fault: "GRANT SELECT (name, nonce) ON gatepost.leases TO $role"},
		"fencing: extend":          {fenceOnly: true, fault: "GRANT UPDATE (expires_at, renewed_at) ON gatepost.leases TO $role"},
		"fencing: take":            {fenceOnly: true, fault: "GRANT INSERT ON gatepost.leases TO $role"},
		"fencing: end":             {fenceOnly: true, fault: "GRANT DELETE ON gatepost.leases TO $role"},
		"fencing: look":            {fenceOnly: true, fault: "GRANT SELECT (name, holder) ON gatepost.leases TO $role", harmless: true},
		"fencing: keys of its own": {fenceOnly: true, fault: "GRANT SELECT, INSERT ON gatepost.idempotency_keys TO $role", harmless: true},
		"fencing: by another role": {fenceOnly: true, fault: "CREATE ROLE $role_team; GRANT SELECT ON gatepost.leases TO $role_team; GRANT $role_team TO $role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := healthy.database(t)
			role := makeRole(t, database, "")
			grants := migrations.Grants
			if c.fenceOnly {
				grants = migrations.FenceOnlyGrants
			}
			sql, err := grants(role)
			if err != nil {
				t.Fatal(err)
			}
			run(t, database, sql, strings.ReplaceAll(c.fault, "$role", role))
			opts := patient()
			opts.Role, opts.FenceOnly = role, c.fenceOnly
			want := []string{"excess weakens role " + role}
			if c.harmless {
				want = []string{}
			}
			r := examine(t, database, opts)
			if got := found(r); !slices.Equal(got, want) {
				t.Fatalf("it found %q, want %q", got, want)
			}
			heal(t, database, r)
			if got := found(examine(t, database, opts)); len(got) != 0 {
				t.Errorf("after the remedy it finds %q", got)
			}
		})
	}
}
