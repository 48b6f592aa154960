package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/migrations"
)

// What is read from the migrations is what they make.
func TestFunctions_AreThoseOfTheMigrations(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	rows, err := doctordb.New(connect(t, url)).FunctionList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	functions, err := migrations.Functions()
	if err != nil || len(functions) != len(rows) || len(rows) < 13 {
		t.Errorf("the migrations make %d functions, %d are read from them, %v", len(rows), len(functions), err)
	}
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("of the migrations' own functions it found %q", got)
	}
}

const guardStatement = "CREATE OR REPLACE FUNCTION gatepost.guard_statement() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER " +
	"SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'"

func TestFunctions_EachChangeIsFoundAndHealed(t *testing.T) {
	t.Parallel()
	const (
		fence = "gatepost.fence(name text, slot integer, token bigint, nonce uuid)"
		try   = "gatepost.try_fence(name text, slot integer, token bigint, nonce uuid, OUT verdict text, OUT current bigint)"
	)
	for name, c := range map[string]struct{ fault, want string }{
		"replaced": {guardStatement, "function weakens gatepost.guard_statement()"},
		"a fence that lets all pass": {
			"CREATE OR REPLACE FUNCTION " + fence + " RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'BEGIN END'",
			"function weakens " + fence,
		},
		"another language": {
			"CREATE OR REPLACE FUNCTION gatepost.fenced(lease text) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT true'",
			"function weakens gatepost.fenced(lease text)",
		},
		"volatility":                 {"ALTER FUNCTION gatepost.hold_fences() IMMUTABLE", "function weakens gatepost.hold_fences()"},
		"strict":                     {"ALTER FUNCTION " + fence + " STRICT", "function weakens " + fence},
		"parallel":                   {"ALTER FUNCTION gatepost.hold_fences() PARALLEL SAFE", "function weakens gatepost.hold_fences()"},
		"as its owner":               {"ALTER FUNCTION gatepost.refuse(text, text, text) SECURITY DEFINER", "function weakens gatepost.refuse(table_schema text, table_name text, lease text)"},
		"not as its owner":           {"ALTER FUNCTION gatepost.guard_row() SECURITY INVOKER", "function weakens gatepost.guard_row()"},
		"as a role that may nothing": {"ALTER FUNCTION gatepost.guard_statement() OWNER TO pg_monitor", "function weakens gatepost.guard_statement()"},
		"no search_path":             {"ALTER FUNCTION " + try + " RESET search_path", "function weakens " + try},
		"another setting":            {"ALTER FUNCTION gatepost.hold_fences() SET standard_conforming_strings = off", "function weakens gatepost.hold_fences()"},
		"another search_path": {
			"ALTER FUNCTION gatepost.hold_fences() SET search_path = public, pg_catalog",
			"function weakens gatepost.hold_fences()",
		},
		"the finisher": {
			"CREATE OR REPLACE FUNCTION gatepost.idempotency_keys_finished() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
			"function weakens gatepost.idempotency_keys_finished()",
		},
		"missing":   {"DROP FUNCTION gatepost.present(text, integer, bigint, uuid)", "function weakens gatepost.present(name text, slot integer, token bigint, nonce uuid)"},
		"one more":  {"CREATE FUNCTION gatepost.fence(integer) RETURNS void LANGUAGE sql AS ''", "function note gatepost.fence(integer)"},
		"everybody": {"GRANT EXECUTE ON FUNCTION gatepost.hold_fences() TO PUBLIC", "function note gatepost.hold_fences()"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := healthy.database(t)
			run(t, url, "CREATE TABLE orders (id bigint)", "SELECT gatepost.guard_table('orders', 'import')", c.fault)
			r := examine(t, url, patient())
			if got := found(r); !slices.Equal(got, []string{c.want}) {
				t.Fatalf("it found %q, want %q", got, c.want)
			}
			heal(t, url, r)
			if strings.Contains(strings.Join(result(t, r, "function").Findings[0].Remedy, " "), "gatepost migrate sql --functions") {
				text, err := migrations.FunctionsSQL()
				if err != nil {
					t.Fatal(err)
				}
				run(t, url, text)
			}
			if left := found(examine(t, url, patient())); len(left) != 0 {
				t.Errorf("after its remedy it finds %q", left)
			}
			if err := execute(t.Context(), url, "INSERT INTO public.orders VALUES (1)"); err == nil {
				t.Error("after its remedy the guard lets a write pass")
			}
		})
	}
}

// A role that may only read sees it.
func TestFunctions_AreSeenByAnyRole(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	role := makeRole(t, url, "")
	run(t, url, guardStatement)
	if got := found(examine(t, as(t, url, role), patient())); !slices.Contains(got, "function weakens gatepost.guard_statement()") {
		t.Errorf("it found %q", got)
	}
}
