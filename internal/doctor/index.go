package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
)

// checkPrimaryKeys looks for the key that makes a name, a resource, a claim one row.
func checkPrimaryKeys(ctx context.Context, v *visit) error {
	indexes, err := v.q.IndexList(ctx)
	if err != nil {
		return err
	}
	for _, t := range inventory {
		if !v.plain(t.name) {
			continue
		}
		key := strings.Join(t.key, ", ")
		if slices.ContainsFunc(indexes, func(i doctordb.IndexListRow) bool {
			return i.TableName == t.name && whole(i) && slices.Equal(i.Columns, t.key)
		}) {
			continue
		}
		v.weakens(qualified(t.name), fmt.Sprintf("The primary key (%s) is missing or can't be relied on: nothing makes it one row, "+
			"and every INSERT ... ON CONFLICT is refused.", key),
			fmt.Sprintf("ALTER TABLE gatepost.%s ADD CONSTRAINT %[1]s_pkey PRIMARY KEY (%s);", t.name, key))
	}
	return nil
}

// whole says that an index holds for each row, at once.
func whole(i doctordb.IndexListRow) bool {
	return i.IsUnique && i.Immediate && i.Valid && !i.Partial && !i.Expression
}

// searched are the indexes that are not keys, and what is slow or possible without them.
var searched = []struct {
	table, name string
	unique      bool
	columns     []string
	text        string
}{
	{"idempotency_keys", "idempotency_keys_expires_at_idx", false, []string{"expires_at"}, "each collection of expired keys reads all of them"},
	{"imports", "imports_sha256_key", true, []string{"sha256", "table_schema", "table_name"}, "two imports of one file can begin at once"},
	{"waiters", "waiters_name_idx", false, []string{"name", "slot"}, "each release reads all waiters"},
}

// checkIndexes looks for the indexes that are not keys of the leases and claims.
func checkIndexes(ctx context.Context, v *visit) error {
	indexes, err := v.q.IndexList(ctx)
	if err != nil {
		return err
	}
	for _, want := range searched {
		if !v.plain(want.table) || slices.ContainsFunc(indexes, func(i doctordb.IndexListRow) bool {
			return i.TableName == want.table && slices.Equal(i.Columns, want.columns) && i.Valid && !i.Partial && (!want.unique || whole(i))
		}) {
			continue
		}
		columns := strings.Join(want.columns, ", ")
		text := fmt.Sprintf("The index on (%s) is missing or not valid: %s.", columns, want.text)
		if want.unique {
			v.weakens(qualified(want.table), text, fmt.Sprintf("ALTER TABLE gatepost.%s ADD CONSTRAINT %s UNIQUE (%s);", want.table, want.name, columns))
			continue
		}
		v.note(qualified(want.table), text, fmt.Sprintf("DROP INDEX IF EXISTS gatepost.%s;", want.name),
			fmt.Sprintf("CREATE INDEX CONCURRENTLY %s ON gatepost.%s (%s);", want.name, want.table, columns))
	}
	return nil
}

var tokenKey = []string{"name", "slot", "token"}

const leaseTable = "leases"

// checkTokenIndex looks for the index that makes a new token a key update, which is
// what waits for FOR KEY SHARE.
func checkTokenIndex(ctx context.Context, v *visit) error {
	if !v.plain(leaseTable) {
		return nil // told by schema
	}
	indexes, err := v.q.IndexList(ctx)
	if err != nil {
		return err
	}
	var wrong []doctordb.IndexListRow
	for _, i := range indexes {
		if i.TableName != leaseTable || !slices.Contains(i.Columns, "token") {
			continue
		}
		if fault(i) == "" {
			return nil
		}
		wrong = append(wrong, i)
	}
	v.tellTokenIndex(wrong)
	return nil
}

// fault says what keeps an index from being the one on the token.
func fault(i doctordb.IndexListRow) string {
	switch {
	case !i.IsUnique:
		return "not unique"
	case !i.Valid:
		return "not valid: its creation failed, or goes on"
	case i.Partial:
		return "partial"
	case i.Expression:
		return "on an expression"
	case !i.Immediate:
		return "deferrable"
	case i.Including:
		return "one with INCLUDE"
	case !slices.Equal(slices.Sorted(slices.Values(i.Columns)), tokenKey): // in any order
		return "on (" + strings.Join(i.Columns, ", ") + ")"
	default:
		return ""
	}
}

func (v *visit) tellTokenIndex(wrong []doctordb.IndexListRow) {
	what := "is missing"
	var remedy []string
	if len(wrong) > 0 {
		what = fmt.Sprintf("is missing; %s is %s", wrong[0].Name, fault(wrong[0]))
		remedy = append(remedy, dropIndex(wrong[0].Name))
	}
	v.weakens("gatepost.leases", "The unique index on (name, slot, token) "+what+". Without it a takeover doesn't wait for an open "+
		"fenced transaction, and what that one writes late is not refused.",
		append(remedy, "ALTER TABLE gatepost.leases ADD CONSTRAINT leases_token_key UNIQUE (name, slot, token);")...)
}

// dropIndex drops an index of the leases, also one that belongs to a constraint.
func dropIndex(name string) string {
	quoted := ident(name)
	return fmt.Sprintf("ALTER TABLE gatepost.leases DROP CONSTRAINT IF EXISTS %s; DROP INDEX IF EXISTS gatepost.%[1]s;", quoted)
}

// changing are the columns of a lease that a heartbeat or a release changes.
var changing = []string{"nonce", "holder", "renewed_at", "expires_at", "data", "reserved_for", "reserved_until"}

// checkExtraIndexes looks for indexes that a heartbeat has to write.
func checkExtraIndexes(ctx context.Context, v *visit) error {
	indexes, err := v.q.IndexList(ctx)
	if err != nil {
		return err
	}
	for _, i := range indexes {
		if i.TableName != leaseTable || !slices.ContainsFunc(i.Columns, beats) {
			continue
		}
		columns := strings.Join(i.Columns, ", ")
		if i.IsUnique && !i.Partial && !i.Expression {
			v.weakens("gatepost."+i.Name, fmt.Sprintf("A unique index on (%s) of the leases makes heartbeats and releases key updates: "+
				"they wait for fenced transactions, and leases are lost.", columns), dropIndex(i.Name))
			continue
		}
		v.note("gatepost."+i.Name, fmt.Sprintf("An index on (%s) of the leases makes each heartbeat write every index, "+
			"and the table and its indexes grow.", columns), dropIndex(i.Name))
	}
	return nil
}

// beats says that a heartbeat changes a column; an expression, which has no name, may read any.
func beats(column string) bool { return column == "" || slices.Contains(changing, column) }
