package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/jackc/pgx/v5"
)

// roleName is a role of a database's own: roles are the server's.
func roleName(url string) string {
	cfg, _ := pgx.ParseConfig(url)
	return "role_" + cfg.Database
}

// heal does what the remedies say, those that are SQL.
func heal(t *testing.T, url string, r *doctor.Report) {
	t.Helper()
	wellFormed(t, r)
	for _, result := range r.Results {
		for _, f := range result.Findings {
			for _, line := range f.Remedy {
				if strings.HasSuffix(line, ";") && !strings.HasPrefix(line, "--") {
					run(t, url, statements(line)...)
				}
			}
		}
	}
}

// statements splits a line: VACUUM must be sent by itself.
func statements(line string) []string {
	parts := strings.SplitAfter(line, "; ")
	return slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" })
}

const dropToken = "ALTER TABLE gatepost.leases DROP CONSTRAINT leases_token_key"

func TestTables_EachFaultIsFoundAndHealed(t *testing.T) {
	t.Parallel()
	const leases, keys = "gatepost.leases", "gatepost.idempotency_keys"
	for name, c := range map[string]struct {
		fault []string
		want  []string
	}{
		"token index missing":    {[]string{dropToken}, []string{"token-index weakens " + leases}},
		"token index not unique": {[]string{dropToken, "CREATE INDEX leases_token_key ON gatepost.leases (name, slot, token)"}, []string{"token-index weakens " + leases}},
		"token index partial":    {[]string{dropToken, "CREATE UNIQUE INDEX x ON gatepost.leases (name, slot, token) WHERE token > 0"}, []string{"token-index weakens " + leases}},
		"token index expression": {[]string{dropToken, "CREATE UNIQUE INDEX x ON gatepost.leases (name, slot, token, (slot + 1))"}, []string{"token-index weakens " + leases, "extra-index note gatepost.x"}},
		"token index deferrable": {[]string{dropToken, "ALTER TABLE gatepost.leases ADD CONSTRAINT y UNIQUE (name, slot, token) DEFERRABLE"}, []string{"token-index weakens " + leases}},
		"token index including":  {[]string{dropToken, "CREATE UNIQUE INDEX x ON gatepost.leases (name, slot, token) INCLUDE (transitions)"}, []string{"token-index weakens " + leases}},
		"token index on less":    {[]string{dropToken, "CREATE UNIQUE INDEX x ON gatepost.leases (name, token)"}, []string{"token-index weakens " + leases}},
		"token index invalid": {
			[]string{"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'gatepost.leases_token_key'::regclass"},
			[]string{"token-index weakens " + leases},
		},

		"a unique key instead": {[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_pkey, ADD CONSTRAINT x UNIQUE (resource)"}, nil},
		"primary key deferrable": {
			[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_pkey, ADD CONSTRAINT x UNIQUE (resource) DEFERRABLE"},
			[]string{"primary-key weakens gatepost.fences"},
		},
		"primary key partial": {
			[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_pkey", "CREATE UNIQUE INDEX x ON gatepost.fences (resource) WHERE token > 0"},
			[]string{"primary-key weakens gatepost.fences"},
		},
		"token index in another order": {[]string{dropToken, "CREATE UNIQUE INDEX x ON gatepost.leases (token, name, slot)"}, nil},
		"indexes on what beats and releases change": {
			[]string{
				"CREATE INDEX a ON gatepost.leases (nonce)", "CREATE INDEX b ON gatepost.leases (data)", "CREATE INDEX c ON gatepost.leases (reserved_for)",
				"CREATE INDEX d ON gatepost.leases (reserved_until)", "CREATE UNIQUE INDEX e ON gatepost.leases (holder) WHERE slot = 0",
			},
			[]string{
				"extra-index note gatepost.a", "extra-index note gatepost.b", "extra-index note gatepost.c", "extra-index note gatepost.d",
				"extra-index note gatepost.e",
			},
		},
		"index of the collection partial": {
			[]string{"DROP INDEX gatepost.idempotency_keys_expires_at_idx", "CREATE INDEX idempotency_keys_expires_at_idx ON gatepost.idempotency_keys (expires_at) WHERE state = 2"},
			[]string{"index note " + keys},
		},
		"no primary key":             {[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_pkey"}, []string{"primary-key weakens gatepost.fences"}},
		"index on the expiry":        {[]string{"CREATE INDEX x ON gatepost.leases (expires_at)"}, []string{"extra-index note gatepost.x"}},
		"index on an expression":     {[]string{"CREATE INDEX x ON gatepost.leases ((holder || ''))"}, []string{"extra-index note gatepost.x"}},
		"unique index on the holder": {[]string{"CREATE UNIQUE INDEX x ON gatepost.leases (holder)"}, []string{"extra-index weakens gatepost.x"}},

		"no index for the collection": {[]string{"DROP INDEX gatepost.idempotency_keys_expires_at_idx"}, []string{"index note " + keys}},
		"index of the waiters invalid": {
			[]string{"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'gatepost.waiters_name_idx'::regclass"},
			[]string{"index note gatepost.waiters"},
		},
		"imports twice": {
			[]string{"ALTER TABLE gatepost.imports DROP CONSTRAINT imports_sha256_key", "CREATE INDEX x ON gatepost.imports (sha256, table_schema, table_name)"},
			[]string{"index weakens gatepost.imports"},
		},
		"no foreign key":                     {[]string{"ALTER TABLE gatepost.idempotency_steps DROP CONSTRAINT idempotency_steps_key_fkey"}, []string{"constraint weakens gatepost.idempotency_steps"}},
		"foreign key off":                    {[]string{"ALTER TABLE gatepost.idempotency_steps DISABLE TRIGGER ALL"}, []string{"constraint weakens gatepost.idempotency_steps"}},
		"foreign key off, on the other side": {[]string{"ALTER TABLE gatepost.imports DISABLE TRIGGER ALL"}, []string{"constraint weakens gatepost.import_rejects"}},
		"foreign key always": {
			[]string{`DO $$ DECLARE t record; BEGIN
				FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'gatepost.idempotency_steps'::regclass LOOP
					EXECUTE format('ALTER TABLE gatepost.idempotency_steps ENABLE ALWAYS TRIGGER %I', t.tgname);
				END LOOP; END $$`},
			nil,
		},
		"a check not valid": {
			[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_token_range, ADD CONSTRAINT fences_token_range CHECK (token >= 0) NOT VALID"},
			[]string{"constraint weakens gatepost.fences"},
		},
		"a domain's check": {[]string{`ALTER DOMAIN gatepost.idem_key DROP CONSTRAINT visible`}, []string{"constraint weakens gatepost.idem_key"}},

		"a domain's check changed": {
			[]string{"ALTER DOMAIN gatepost.lease_ttl DROP CONSTRAINT range", "ALTER DOMAIN gatepost.lease_ttl ADD CONSTRAINT range CHECK (VALUE BETWEEN 1 AND 604800000001)"},
			[]string{"constraint weakens gatepost.lease_ttl"},
		},
		"a check changed": {
			[]string{"ALTER TABLE gatepost.fences DROP CONSTRAINT fences_token_range, ADD CONSTRAINT fences_token_range CHECK (token >= -1)"},
			[]string{"constraint weakens gatepost.fences"},
		},
		"a foreign key changed": {
			[]string{"ALTER TABLE gatepost.import_rejects DROP CONSTRAINT import_rejects_import_id_fkey, ADD CONSTRAINT import_rejects_import_id_fkey FOREIGN KEY (import_id) REFERENCES gatepost.imports (id)"},
			[]string{"constraint weakens gatepost.import_rejects"},
		},
		"finisher at once": {
			[]string{
				"DROP TRIGGER idempotency_keys_finished ON gatepost.idempotency_keys",
				"CREATE CONSTRAINT TRIGGER idempotency_keys_finished AFTER INSERT ON gatepost.idempotency_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW " +
					"WHEN (new.state = 1 AND new.lease_until IS NULL) EXECUTE FUNCTION gatepost.idempotency_keys_finished()",
			},
			[]string{"trigger weakens " + keys},
		},
		"finisher calls another": {
			[]string{
				"DROP TRIGGER idempotency_keys_finished ON gatepost.idempotency_keys",
				"CREATE TRIGGER idempotency_keys_finished AFTER UPDATE ON gatepost.idempotency_keys FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
			},
			[]string{"trigger weakens " + keys},
		},

		"leases unlogged": {[]string{"ALTER TABLE gatepost.leases SET UNLOGGED"}, []string{"unlogged weakens " + leases}},
		"fences unlogged": {[]string{"ALTER TABLE gatepost.fences SET UNLOGGED"}, []string{"unlogged weakens gatepost.fences"}},
		"waiters logged":  {[]string{"ALTER TABLE gatepost.waiters SET LOGGED"}, []string{"unlogged note gatepost.waiters"}},

		"finisher missing":   {[]string{"DROP TRIGGER idempotency_keys_finished ON gatepost.idempotency_keys"}, []string{"trigger weakens " + keys}},
		"finisher disabled":  {[]string{"ALTER TABLE gatepost.idempotency_keys DISABLE TRIGGER idempotency_keys_finished"}, []string{"trigger weakens " + keys}},
		"finisher a replica": {[]string{"ALTER TABLE gatepost.idempotency_keys ENABLE REPLICA TRIGGER idempotency_keys_finished"}, []string{"trigger weakens " + keys}},
		"finisher always":    {[]string{"ALTER TABLE gatepost.idempotency_keys ENABLE ALWAYS TRIGGER idempotency_keys_finished"}, nil},
		"finisher elsewhere": {
			[]string{
				"DROP TRIGGER idempotency_keys_finished ON gatepost.idempotency_keys",
				"CREATE TRIGGER idempotency_keys_finished AFTER UPDATE ON gatepost.fences FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
			},
			[]string{"trigger note gatepost.fences", "trigger weakens " + keys},
		},
		"another trigger": {
			[]string{"CREATE TRIGGER audit AFTER UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()"},
			[]string{"trigger note " + leases},
		},
		"a trigger that changes rows": {
			[]string{"CREATE TRIGGER quiet BEFORE UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()"},
			[]string{"trigger weakens " + leases},
		},
		"a trigger that is off": {
			[]string{
				"CREATE TRIGGER quiet BEFORE UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
				"ALTER TABLE gatepost.leases DISABLE TRIGGER quiet",
			},
			[]string{"trigger note " + leases},
		},
		"row security": {[]string{"ALTER TABLE gatepost.leases ENABLE ROW LEVEL SECURITY"}, []string{"row-rewrite weakens " + leases}},
		"a rule":       {[]string{"CREATE RULE quiet AS ON DELETE TO gatepost.waiters DO INSTEAD NOTHING"}, []string{"row-rewrite weakens gatepost.waiters"}},
		"everybody":    {[]string{"GRANT SELECT, UPDATE, DELETE ON gatepost.leases TO PUBLIC"}, []string{"public-grant weakens " + leases}},

		"everybody empties": {[]string{"GRANT TRUNCATE, TRIGGER ON gatepost.fences TO PUBLIC"}, []string{"public-grant weakens gatepost.fences"}},
		"everybody changes columns": {
			[]string{"GRANT UPDATE (token, expires_at), INSERT (name), SELECT (slot) ON gatepost.leases TO PUBLIC"},
			[]string{"public-grant weakens " + leases},
		},

		"a column more":    {[]string{"ALTER TABLE gatepost.leases ADD COLUMN note text"}, []string{"columns note " + leases}},
		"a column less":    {[]string{"ALTER TABLE gatepost.leases DROP COLUMN data"}, []string{"columns weakens " + leases}},
		"NULL allowed":     {[]string{"ALTER TABLE gatepost.leases ALTER COLUMN expires_at DROP NOT NULL"}, []string{"columns weakens " + leases}},
		"NULL not allowed": {[]string{"ALTER TABLE gatepost.leases ALTER COLUMN holder SET NOT NULL"}, []string{"columns weakens " + leases}},

		"fillfactor":                 {[]string{"ALTER TABLE gatepost.leases SET (fillfactor = 90)"}, []string{"fillfactor note " + leases}},
		"fillfactor reset":           {[]string{"ALTER TABLE gatepost.idempotency_keys RESET (fillfactor)"}, []string{"fillfactor note " + keys}},
		"autovacuum disabled, as no": {[]string{"ALTER TABLE gatepost.fences SET (autovacuum_enabled = no)"}, []string{"autovacuum note gatepost.fences"}},
		"autovacuum disabled":        {[]string{"ALTER TABLE gatepost.leases SET (autovacuum_enabled = off)"}, []string{"autovacuum note " + leases}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findsExactly(t, healthy, c.fault, patient(), c.want...)
		})
	}
}
