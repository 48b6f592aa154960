package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
)

// constraint is a check or a foreign key as the migrations leave it.
type constraint struct {
	of, name, definition string
	domain               bool
	refers               string // a foreign key's other table
}

var constraints = []constraint{
	{of: "fences", name: "fences_resource_length", definition: "CHECK (octet_length(resource) BETWEEN 1 AND 255)"},
	{of: "fences", name: "fences_token_range", definition: "CHECK (token >= 0)"},
	{of: "idem_fingerprint", name: "sha256", definition: "CHECK (octet_length(VALUE) = 32)", domain: true},
	{of: "idem_key", name: "visible", definition: `CHECK (VALUE ~ '^[\x21-\x7e]+$' AND octet_length(VALUE) <= 255)`, domain: true},
	{of: "idem_operation", name: "length", definition: "CHECK (octet_length(VALUE) BETWEEN 1 AND 200)", domain: true},
	{of: "idem_scope", name: "length", definition: "CHECK (octet_length(VALUE) BETWEEN 1 AND 200)", domain: true},
	{of: "idem_state", name: "known", definition: "CHECK (VALUE BETWEEN 1 AND 4)", domain: true},
	{of: "idempotency_steps", name: "idempotency_steps_key_fkey", refers: "idempotency_keys", definition: "FOREIGN KEY (operation, scope, key) " +
		"REFERENCES gatepost.idempotency_keys (operation, scope, key) ON DELETE CASCADE"},
	{of: "idempotency_steps", name: "idempotency_steps_step_length", definition: "CHECK (octet_length(step) BETWEEN 1 AND 200)"},
	{of: "import_rejects", name: "import_rejects_import_id_fkey", refers: "imports", definition: "FOREIGN KEY (import_id) " +
		"REFERENCES gatepost.imports (id) ON DELETE CASCADE"},
	{of: "import_rejects", name: "import_rejects_line_range", definition: "CHECK (line > 0)"},
	{of: "imports", name: "imports_bytes_range", definition: "CHECK (bytes >= 0)"},
	{of: "imports", name: "imports_sha256_length", definition: "CHECK (octet_length(sha256) = 32)"},
	{of: "lease_data", name: "length", definition: "CHECK (octet_length(VALUE::text) <= 65536)", domain: true},
	{of: "lease_holder", name: "length", definition: "CHECK (octet_length(VALUE) BETWEEN 1 AND 255)", domain: true},
	{of: "lease_name", name: "length", definition: "CHECK (octet_length(VALUE) BETWEEN 1 AND 255)", domain: true},
	{of: "lease_slot", name: "range", definition: "CHECK (VALUE >= 0)", domain: true},
	{of: "lease_token", name: "range", definition: "CHECK (VALUE > 0)", domain: true},
	{of: "lease_ttl", name: "range", definition: "CHECK (VALUE BETWEEN 1 AND 604800000000)", domain: true},
}

// checkConstraints looks for constraints that are gone, or don't hold.
func checkConstraints(ctx context.Context, v *visit) error {
	rows, err := v.q.ConstraintList(ctx)
	if err != nil {
		return err
	}
	for _, c := range constraints {
		i := slices.IndexFunc(rows, func(r doctordb.ConstraintListRow) bool {
			return r.Owner == c.of && r.Name == c.name && r.OfDomain == c.domain
		})
		switch {
		case !c.domain && !v.plain(c.of): // told by schema
		case i < 0:
			v.weakens(qualified(c.of), fmt.Sprintf("The constraint %s is missing: it refused what the programs rely on not to find.", c.name),
				fmt.Sprintf("ALTER %s gatepost.%s ADD CONSTRAINT %s %s;", c.kind(), c.of, c.name, c.definition))
		case bare(rows[i].Definition) != bare(c.definition):
			v.weakens(qualified(c.of), fmt.Sprintf("The constraint %s was changed to %s: it refused what the programs rely on not to find.",
				c.name, rows[i].Definition), fmt.Sprintf("ALTER %s gatepost.%s DROP CONSTRAINT %s;", c.kind(), c.of, c.name),
				fmt.Sprintf("ALTER %s gatepost.%s ADD CONSTRAINT %s %s;", c.kind(), c.of, c.name, c.definition))
		case !rows[i].Holds:
			v.weakens(qualified(c.of), fmt.Sprintf("The constraint %s is not valid, or its triggers are disabled: there may be rows that break it.", c.name),
				c.enforce()...)
		}
	}
	return nil
}

func (c constraint) kind() string {
	if c.domain {
		return "DOMAIN"
	}
	return "TABLE"
}

// enforce makes a constraint hold again.
func (c constraint) enforce() (remedy []string) {
	if c.refers != "" {
		remedy = append(remedy, fmt.Sprintf("ALTER TABLE gatepost.%s ENABLE TRIGGER ALL;", c.of),
			fmt.Sprintf("ALTER TABLE gatepost.%s ENABLE TRIGGER ALL;", c.refers))
	}
	return append(remedy, fmt.Sprintf("ALTER %s gatepost.%s VALIDATE CONSTRAINT %s;", c.kind(), c.of, c.name))
}

var (
	typeCast  = regexp.MustCompile(`::\w+`)
	noise     = regexp.MustCompile(`[\s()']|notvalid$`)
	isBetween = regexp.MustCompile(`(value|octet_length\w+)>=(\d+)and(value|octet_length\w+)<=(\d+)`)
)

// bare is a definition in one form, whether the server wrote it or a person: without
// brackets, blanks and casts, and BETWEEN as one.
func bare(definition string) string {
	text := noise.ReplaceAllString(strings.ToLower(typeCast.ReplaceAllString(definition, "")), "")
	return isBetween.ReplaceAllString(text, "${1}between${2}and${4}")
}
