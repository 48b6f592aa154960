package doctor_test

import (
	"slices"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/jackc/pgx/v5"
)

// readConstraints are those of a database, as the server writes them.
const readConstraints = `
	SELECT coalesce(c.relname, t.typname)::text AS of, k.conname::text AS name, pg_get_constraintdef(k.oid) AS definition
	FROM pg_constraint AS k
	LEFT JOIN pg_class AS c ON c.oid = k.conrelid
	LEFT JOIN pg_type AS t ON t.oid = k.contypid
	WHERE k.connamespace = 'gatepost'::regnamespace AND k.contype IN ('c', 'f')
	ORDER BY 1, 2`

// The inventory's constraints are those of the migrations, and its definitions, which
// are remedies, make the same ones.
func TestConstraints_AreThoseOfTheMigrations(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	migrated := constraintsOf(t, url)
	kinds := map[bool]string{true: "DOMAIN", false: "TABLE"}
	var fault []string
	for _, c := range doctor.Constraints() {
		_, table := tables[c.Of]
		fault = append(fault, "ALTER "+kinds[!table]+" gatepost."+c.Of+" DROP CONSTRAINT "+c.Name)
	}
	run(t, url, fault...)
	if left := constraintsOf(t, url); len(left) != 0 {
		t.Errorf("the inventory doesn't have %+v", left)
	}
	r := examine(t, url, patient())
	if n := len(result(t, r, "constraint").Findings); n != len(migrated) || n != len(found(r)) {
		t.Errorf("without constraints it found %q", found(r))
	}
	heal(t, url, r)
	if got := constraintsOf(t, url); !slices.Equal(got, migrated) {
		t.Errorf("after its remedies they are %+v, and not %+v", got, migrated)
	}
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("after its remedies it finds %q", got)
	}
}

// tables are those that have constraints; the rest of the names are domains.
var tables = map[string]bool{"fences": true, "idempotency_steps": true, "import_rejects": true, "imports": true}

func constraintsOf(t *testing.T, url string) []doctor.Constraint {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(), readConstraints)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[doctor.Constraint])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
