package migrations

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// ErrInvalidRole says why a text can't be the name of a role.
var ErrInvalidRole = errors.New("migrations: invalid role")

// applicationGrants is what pglock and idem need, and no more: DELETE is for their GC, and
// names and keys are never changed. %[1]s is the role, %[2]s its name as a text.
const applicationGrants = `-- For a role whose program uses pglock and idem. It can read each lease's nonce and change
-- the rows of the leases by hand: keep it to programs that hold leases.
GRANT USAGE ON SCHEMA gatepost TO %[1]s;
GRANT SELECT, INSERT, DELETE ON gatepost.leases TO %[1]s;
GRANT UPDATE (token, nonce, holder, acquired_at, renewed_at, expires_at, transitions, data, reserved_for, reserved_until)
    ON gatepost.leases TO %[1]s;
GRANT SELECT, INSERT, UPDATE (token, updated_at) ON gatepost.fences TO %[1]s;
GRANT SELECT, INSERT, UPDATE (since, expires_at), DELETE ON gatepost.waiters TO %[1]s;
GRANT SELECT, INSERT, DELETE, UPDATE (
    state, fingerprint, fingerprint_version, attempt, attempt_no, lease_until,
    status, headers, body, body_len, codec, created_at, done_at, expires_at
) ON gatepost.idempotency_keys TO %[1]s;
GRANT SELECT, INSERT, DELETE ON gatepost.idempotency_steps TO %[1]s;
GRANT SELECT, INSERT ON gatepost.imports, gatepost.import_rejects TO %[1]s;
GRANT EXECUTE ON FUNCTION
    gatepost.try_fence(text, integer, bigint, uuid),
    gatepost.fence(text, integer, bigint, uuid),
    gatepost.fence(text)
TO %[1]s;
-- To guard tables that the role owns, and to make partitions of guarded ones.
GRANT EXECUTE ON FUNCTION
    gatepost.guard_table(regclass, text, name),
    gatepost.unguard_table(regclass),
    gatepost.guard_statement(),
    gatepost.guard_row()
TO %[1]s;
-- For CopyOnce, where PUBLIC has lost the right.
DO $$ BEGIN EXECUTE pg_catalog.format('GRANT TEMPORARY ON DATABASE %%I TO %%I', pg_catalog.current_database(), %[2]s); END $$;
`

// fenceOnlyGrants is what Client.InTx, Fence and gatepost.fence need.
const fenceOnlyGrants = `-- For a role that writes under leases of others, with sequencers that it was handed: it can
-- neither read a lease nor take, extend or release one.
GRANT USAGE ON SCHEMA gatepost TO %[1]s;
GRANT EXECUTE ON FUNCTION
    gatepost.try_fence(text, integer, bigint, uuid),
    gatepost.fence(text, integer, bigint, uuid),
    gatepost.fence(text)
TO %[1]s;
`

// Grants returns, as SQL, the least privileges of an application's role: with them it can
// do everything in pglock and idem, and nothing else in the schema gatepost. Run it as the
// schema's owner, and again after an update: it grants and takes nothing away. It says
// nothing of the application's own tables.
func Grants(role string) (string, error) { return grants(applicationGrants, role) }

// FenceOnlyGrants is Grants for a role that only fences, with a sequencer that it was
// handed.
func FenceOnlyGrants(role string) (string, error) { return grants(fenceOnlyGrants, role) }

func grants(format, role string) (string, error) {
	switch {
	case role == "" || !utf8.ValidString(role) || strings.ContainsRune(role, 0):
		return "", fmt.Errorf("%w: it must be UTF-8, not empty, and without NUL", ErrInvalidRole)
	case len(role) > 63:
		return "", fmt.Errorf("%w: %q has %d bytes, and PostgreSQL keeps 63", ErrInvalidRole, role, len(role))
	}
	quoted := pgx.Identifier{role}.Sanitize()
	if !strings.Contains(format, "%[2]s") {
		return fmt.Sprintf(format, quoted), nil
	}
	return fmt.Sprintf(format, quoted, literal(role)), nil
}

// literal quotes a text for SQL inside $$, whatever standard_conforming_strings is.
func literal(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, `$`, `\x24`).Replace(text) + "'"
}
