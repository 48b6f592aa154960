package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

// needs are the privileges of an application role, by table.
var needs = []struct {
	table      string
	privileges []string
}{
	{"fences", []string{"SELECT", "INSERT", "UPDATE"}},
	{"idempotency_keys", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"idempotency_steps", []string{"SELECT", "INSERT", "DELETE"}},
	{"leases", []string{"SELECT", "INSERT", "UPDATE"}},
	{"waiters", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
}

// checkPrivileges compares what the application's role may do with what pglock and idem
// do.
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
	lacking, err := v.lacking(ctx)
	if err != nil {
		return err
	}
	v.tellLacking(uses, lacking)
	return nil
}

func (v *visit) tellLacking(uses bool, lacking map[string][]string) {
	role := v.opts.Role
	var parts, remedy []string
	tell := func(privileges, object string) {
		parts = append(parts, privileges+" on "+object)
		remedy = append(remedy, fmt.Sprintf("GRANT %s ON %s TO %s;", privileges, object, ident(role)))
	}
	if !uses {
		tell("USAGE", "SCHEMA gatepost")
	}
	for _, n := range needs {
		if lacks := lacking[n.table]; len(lacks) > 0 {
			tell(strings.Join(lacks, ", "), qualified(n.table))
		}
	}
	if len(parts) > 0 {
		v.weakens("role "+role, "It lacks "+strings.Join(parts, "; ")+": what needs it is refused.", remedy...)
	}
}

// lacking are the privileges that the role needs and hasn't got, by table.
func (v *visit) lacking(ctx context.Context) (map[string][]string, error) {
	arg := doctordb.RolePrivilegesParams{Role: v.opts.Role}
	for _, n := range needs {
		for _, p := range n.privileges {
			arg.Tables, arg.Privileges = append(arg.Tables, n.table), append(arg.Privileges, p)
		}
	}
	rows, err := v.q.RolePrivileges(ctx, arg)
	lacking := map[string][]string{}
	for _, r := range rows {
		if !r.Granted {
			lacking[r.TableName] = append(lacking[r.TableName], r.Privilege)
		}
	}
	return lacking, err
}

// checkOwner looks whether the application's role is bound by anything.
func checkOwner(ctx context.Context, v *visit) error {
	role := v.opts.Role
	about, err := v.q.RoleAbout(ctx, role)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // told by privilege
	}
	switch {
	case err != nil:
		return err
	case about.Superuser:
		v.note("role "+role, "It is a superuser: no privilege and no guard binds it.", fmt.Sprintf("ALTER ROLE %s NOSUPERUSER;", ident(role)))
	case about.Owns:
		v.note("role "+role, "It owns Gatepost's tables, or is a member of their owner: it can disable their triggers, guards too. "+
			"Migrate as another role.", fmt.Sprintf("gatepost migrate grants %s", shellWord(role)))
	}
	return nil
}
