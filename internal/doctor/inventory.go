package doctor

import (
	"fmt"
	"slices"
)

// table is one of Gatepost's as the migrations leave it. A test compares all with a
// database that was migrated.
type table struct {
	name       string
	unlogged   bool
	fillfactor int // 0: the default
	key        []string
	columns    []string // name, type, NOT NULL
}

var inventory = []table{
	{name: "fences", fillfactor: 70, key: []string{"resource"}, columns: []string{
		"resource text NOT NULL",
		"token int8 NOT NULL",
		"updated_at timestamptz NOT NULL",
	}},
	{name: "idempotency_keys", fillfactor: 80, key: []string{"operation", "scope", "key"}, columns: []string{
		"operation gatepost.idem_operation NOT NULL",
		"scope gatepost.idem_scope NOT NULL",
		"key gatepost.idem_key NOT NULL",
		"state gatepost.idem_state NOT NULL",
		"fingerprint gatepost.idem_fingerprint NOT NULL",
		"fingerprint_version int2 NOT NULL",
		"attempt uuid NOT NULL",
		"attempt_no int8 NOT NULL",
		"lease_until timestamptz",
		"status int4",
		"headers jsonb",
		"body bytea",
		"body_len int8",
		"codec text",
		"created_at timestamptz NOT NULL",
		"done_at timestamptz",
		"expires_at timestamptz NOT NULL",
	}},
	{name: "idempotency_steps", key: []string{"operation", "scope", "key", "step"}, columns: []string{
		"operation gatepost.idem_operation NOT NULL",
		"scope gatepost.idem_scope NOT NULL",
		"key gatepost.idem_key NOT NULL",
		"step text NOT NULL",
		"output bytea NOT NULL",
		"done_at timestamptz NOT NULL",
	}},
	{name: "import_rejects", key: []string{"import_id", "line"}, columns: []string{
		"import_id int4 NOT NULL",
		"line int8 NOT NULL",
		"raw bytea NOT NULL",
		"reason text NOT NULL",
		"created_at timestamptz NOT NULL",
	}},
	{name: "imports", key: []string{"id"}, columns: []string{
		"id int4 NOT NULL",
		"sha256 bytea NOT NULL",
		"table_schema text NOT NULL",
		"table_name text NOT NULL",
		"key text NOT NULL",
		"file text NOT NULL",
		"bytes int8 NOT NULL",
		"created_at timestamptz NOT NULL",
	}},
	{name: "leases", fillfactor: 45, key: []string{"name", "slot"}, columns: []string{
		"name gatepost.lease_name NOT NULL",
		"slot gatepost.lease_slot NOT NULL",
		"token gatepost.lease_token NOT NULL",
		"nonce uuid",
		"holder gatepost.lease_holder",
		"acquired_at timestamptz NOT NULL",
		"renewed_at timestamptz NOT NULL",
		"expires_at timestamptz NOT NULL",
		"transitions int8 NOT NULL",
		"data gatepost.lease_data",
		"reserved_for gatepost.lease_holder",
		"reserved_until timestamptz",
	}},
	{name: "waiters", unlogged: true, fillfactor: 45, key: []string{"client", "waiter"}, columns: []string{
		"client text NOT NULL",
		"waiter int8 NOT NULL",
		"name text NOT NULL",
		"slot int4 NOT NULL",
		"holder text NOT NULL",
		"since timestamptz NOT NULL",
		"expires_at timestamptz NOT NULL",
	}},
}

// readable is the part of a table that a role needs to look at it; all where there is
// none. The nonce of a lease, and the reply to a key, are nobody's business.
var readable = map[string]string{
	"leases":           "(name, slot, token, holder, acquired_at, renewed_at, expires_at, transitions, reserved_for, reserved_until, xmax) ",
	"idempotency_keys": "(operation, state, lease_until, created_at, expires_at) ",
}

// ours finds a table in the inventory.
func ours(name string) (table, bool) {
	i := slices.IndexFunc(inventory, func(t table) bool { return t.name == name })
	if i < 0 {
		return table{}, false
	}
	return inventory[i], true
}

// rebuild is the remedy for a table that can't be mended without knowing what happened.
func rebuild() []string {
	return []string{
		"-- restore the table from a backup; or, while nothing is held and no key is needed, make all anew:",
		`psql "$DATABASE_URL" -c 'DROP SCHEMA gatepost CASCADE' && gatepost migrate up`,
		"-- that takes guards and privileges along: then gatepost guard add, and gatepost migrate grants ROLE",
	}
}

func qualified(name string) string { return fmt.Sprintf("gatepost.%s", name) }
