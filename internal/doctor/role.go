package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

// need is a privilege that an application's role must have on one of Gatepost's tables;
// without columns on the whole of it.
type need struct {
	table, privilege string
	columns          []string
}

// needs are those of pglock and idem, as `gatepost migrate grants` gives them: a test
// compares the two.
var needs = []need{
	{table: "fences", privilege: "SELECT"},
	{table: "fences", privilege: "INSERT"},
	{table: "fences", privilege: "UPDATE", columns: []string{"token", "updated_at"}},
	{table: "idempotency_keys", privilege: "SELECT"},
	{table: "idempotency_keys", privilege: "INSERT"},
	{table: "idempotency_keys", privilege: "UPDATE", columns: []string{
		"state", "fingerprint", "fingerprint_version", "attempt", "attempt_no", "lease_until",
		"status", "headers", "body", "body_len", "codec", "created_at", "done_at", "expires_at",
	}},
	{table: "idempotency_keys", privilege: "DELETE"},
	{table: "idempotency_steps", privilege: "SELECT"},
	{table: "idempotency_steps", privilege: "INSERT"},
	{table: "idempotency_steps", privilege: "DELETE"},
	{table: "import_rejects", privilege: "SELECT"},
	{table: "import_rejects", privilege: "INSERT"},
	{table: "imports", privilege: "SELECT"},
	{table: "imports", privilege: "INSERT"},
	{table: "leases", privilege: "SELECT"},
	{table: "leases", privilege: "INSERT"},
	{table: "leases", privilege: "UPDATE", columns: []string{
		"token", "nonce", "holder", "acquired_at", "renewed_at", "expires_at", "transitions", "data", "reserved_for", "reserved_until",
	}},
	{table: "leases", privilege: "DELETE"},
	{table: "waiters", privilege: "SELECT"},
	{table: "waiters", privilege: "INSERT"},
	{table: "waiters", privilege: "UPDATE", columns: []string{"since", "expires_at"}},
	{table: "waiters", privilege: "DELETE"},
}

// calls are the functions that both kinds of roles must be allowed to call.
var calls = []string{"fence", "try_fence"}

// checkPrivileges compares what the application's role may do with what pglock and idem
// do, or a fence alone.
func checkPrivileges(ctx context.Context, v *visit) error {
	role := v.opts.Role
	if _, err := v.q.RoleAbout(ctx, role); errors.Is(err, pgx.ErrNoRows) {
		v.weakens("role "+role, "There is no such role.", fmt.Sprintf("CREATE ROLE %s LOGIN;", ident(role)))
		return nil
	}
	uses, err := v.q.RoleUsesSchema(ctx, role)
	if err != nil {
		return err
	}
	var lacks []string // as a GRANT names them
	if !uses {
		lacks = append(lacks, "USAGE ON SCHEMA gatepost")
	}
	if !v.opts.FenceOnly {
		tables, err := v.lackingTables(ctx)
		if err != nil {
			return err
		}
		lacks = append(lacks, tables...)
	}
	functions, err := v.lackingFunctions(ctx)
	v.tellLacking(append(lacks, functions...))
	return err
}

func (v *visit) tellLacking(lacks []string) {
	if len(lacks) == 0 {
		return
	}
	role, flag := v.opts.Role, ""
	if v.opts.FenceOnly {
		flag = " --fence-only"
	}
	remedy := []string{fmt.Sprintf("-- all that it needs: gatepost migrate grants %s%s; or what it lacks:", shellWord(role), flag)}
	for _, privilege := range lacks {
		remedy = append(remedy, fmt.Sprintf("GRANT %s TO %s;", privilege, ident(role)))
	}
	text := lacks[0]
	if len(lacks) > 1 {
		text += fmt.Sprintf(" and %d more", len(lacks)-1)
	}
	v.weakens("role "+role, "It lacks "+text+": what needs that is refused.", remedy...)
}

// lackingTables are the privileges on tables that the role needs and hasn't got.
func (v *visit) lackingTables(ctx context.Context) (lacks []string, err error) {
	arg := doctordb.RolePrivilegesParams{Role: v.opts.Role}
	for _, n := range needs {
		columns := n.columns
		if columns == nil {
			columns = []string{""}
		}
		for _, c := range columns {
			arg.Tables, arg.Privileges, arg.Columns = append(arg.Tables, n.table), append(arg.Privileges, n.privilege), append(arg.Columns, c)
		}
	}
	rows, err := v.q.RolePrivileges(ctx, arg)
	if err != nil {
		return nil, err
	}
	lacking := map[string][]string{} // columns, by privilege and table
	for _, r := range rows {
		if key := r.Privilege + r.TableName; !r.Granted {
			lacking[key] = append(lacking[key], r.ColumnName)
		}
	}
	var privileges []string // of one table
	for i, n := range needs {
		if columns, ok := lacking[n.privilege+n.table]; ok {
			privileges = append(privileges, n.lacking(columns))
		}
		if last := i == len(needs)-1 || needs[i+1].table != n.table; last && len(privileges) > 0 {
			lacks = append(lacks, strings.Join(privileges, ", ")+" ON gatepost."+n.table)
			privileges = nil
		}
	}
	return lacks, nil
}

// lacking is the privilege as a GRANT names it, for some columns.
func (n need) lacking(columns []string) string {
	if n.columns == nil {
		return n.privilege
	}
	return fmt.Sprintf("%s (%s)", n.privilege, strings.Join(columns, ", "))
}

func (v *visit) lackingFunctions(ctx context.Context) (lacks []string, err error) {
	rows, err := v.q.RoleFunctions(ctx, doctordb.RoleFunctionsParams{Role: v.opts.Role, Names: calls})
	for _, r := range rows {
		if !r.Granted {
			lacks = append(lacks, fmt.Sprintf("EXECUTE ON FUNCTION gatepost.%s(%s)", r.Name, r.Arguments))
		}
	}
	return lacks, err
}

// checkOwner looks whether the application's role is bound by anything.
func checkOwner(ctx context.Context, v *visit) error {
	role := v.opts.Role
	about, err := v.q.RoleAbout(ctx, role)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // told by privilege
	}
	if err != nil {
		return err
	}
	if about.Superuser {
		v.note("role "+role, "It is a superuser: no privilege and no guard binds it.", fmt.Sprintf("ALTER ROLE %s NOSUPERUSER;", ident(role)))
		return nil
	}
	if about.Owns {
		v.note("role "+role, "It owns Gatepost's tables, or is a member of their owner: it can switch their triggers off, and change tokens. "+
			"Migrate as another role.", "-- ALTER TABLE ... OWNER TO another one; then: gatepost migrate grants "+shellWord(role))
	}
	tables, err := v.q.GuardOwned(ctx, role)
	if len(tables) > 0 {
		v.note("role "+role, fmt.Sprintf("It owns %s, which %s guarded: an owner can take a guard off, and switch its triggers off.",
			strings.Join(tables, ", "), plural(len(tables), "is", "are")), "-- ALTER TABLE ... OWNER TO a role that no program writes as")
	}
	return err
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
