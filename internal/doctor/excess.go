package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

// checkExcess looks for what the application's role may do beyond what `gatepost migrate
// grants` gives it. What everybody may do is told by public-grant, and an owner by owner.
func checkExcess(ctx context.Context, v *visit) error {
	role := v.opts.Role
	about, err := v.q.RoleAbout(ctx, role)
	if errors.Is(err, pgx.ErrNoRows) || about.Superuser || about.Owns {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := v.q.RoleGranted(ctx, role)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r doctordb.RoleGrantedRow) bool { return !v.exceeds(r) })
	privileges, remedy := revokes(rows)
	if len(privileges) == 0 {
		return nil
	}
	text := privileges[0]
	if len(privileges) > 1 {
		text += fmt.Sprintf(" and %d more", len(privileges)-1)
	}
	v.weakens("role "+role, fmt.Sprintf("It has %s, which it doesn't need: %s.", text, v.harm()), remedy...)
	return nil
}

// exceeds says whether a privilege is more than the role needs. To read is harmless, but
// for the nonces.
func (v *visit) exceeds(r doctordb.RoleGrantedRow) bool {
	if r.TableName == "" {
		return r.Privilege == "CREATE"
	}
	switch r.Privilege {
	case "TRUNCATE", "TRIGGER", "REFERENCES":
		return true
	case "SELECT":
		return v.opts.FenceOnly && r.TableName == "leases" && (r.ColumnName == "" || r.ColumnName == "nonce")
	case "INSERT", "UPDATE", "DELETE":
		if v.opts.FenceOnly {
			return r.TableName == "leases"
		}
		return !slices.ContainsFunc(needs, func(n need) bool { return n.table == r.TableName && n.privilege == r.Privilege })
	default: // MAINTAIN
		return false
	}
}

func (v *visit) harm() string {
	if v.opts.FenceOnly {
		return "a role that only fences must not read a nonce, nor take or extend a lease"
	}
	return "a mistake of its program can empty Gatepost's tables, or change what they do"
}

// revokes are privileges as a REVOKE names them, those of a table and a grantee together,
// and the statements.
func revokes(rows []doctordb.RoleGrantedRow) (privileges, statements []string) {
	for start := 0; start < len(rows); {
		end := start
		for end < len(rows) && rows[end].Grantee == rows[start].Grantee && rows[end].TableName == rows[start].TableName {
			end++
		}
		object := "SCHEMA gatepost"
		if name := rows[start].TableName; name != "" {
			object = qualified(name)
		}
		list := granted(rows[start:end]) + " ON " + object
		privileges = append(privileges, list)
		statements = append(statements, fmt.Sprintf("REVOKE %s FROM %s;", list, ident(rows[start].Grantee)))
		start = end
	}
	return privileges, statements
}

// granted names privileges on one table; a privilege on all of it covers its columns.
func granted(rows []doctordb.RoleGrantedRow) string {
	var list []string
	for start := 0; start < len(rows); {
		n, columns, end := need{privilege: rows[start].Privilege}, []string(nil), start
		for ; end < len(rows) && rows[end].Privilege == n.privilege; end++ {
			columns = append(columns, rows[end].ColumnName)
		}
		if columns[0] != "" {
			n.columns = columns
		}
		list = append(list, n.lacking(columns))
		start = end
	}
	return strings.Join(list, ", ")
}
