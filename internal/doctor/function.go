package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/migrations"
)

// makeFunctions makes all functions again, in place.
const makeFunctions = `gatepost migrate sql --functions | psql "$DATABASE_URL"`

// checkFunctions compares Gatepost's functions with those that the migrations make: one
// that was replaced can let every write pass.
func checkFunctions(ctx context.Context, v *visit) error {
	rows, err := v.q.FunctionList(ctx)
	if err != nil {
		return err
	}
	functions, err := migrations.Functions()
	if err != nil {
		return err
	}
	found := map[string]doctordb.FunctionListRow{}
	for _, row := range rows {
		found[signature(row.Name, row.Arguments)] = row
	}
	for _, want := range functions {
		object := signature(want.Name, want.Arguments)
		row, ok := found[object]
		if !ok {
			v.weakens(object, "The function is missing: fences and guards that call it are refused, and guards whose trigger it was are gone.",
				makeFunctions, "-- and grant it again: gatepost migrate grants ROLE; and guard again the tables that gatepost guard ls doesn't list")
			continue
		}
		v.judgeFunction(want, object, row)
		delete(found, object)
	}
	for _, row := range rows {
		object := signature(row.Name, row.Arguments)
		if _, ok := found[object]; ok {
			v.note(object, "The function is not Gatepost's: a call of one that is may find it instead.", fmt.Sprintf("DROP ROUTINE %s;", object))
		}
	}
	return nil
}

func signature(name, arguments string) string {
	return fmt.Sprintf("gatepost.%s(%s)", name, arguments)
}

func (v *visit) judgeFunction(want migrations.Function, object string, row doctordb.FunctionListRow) {
	if want.Definer && !row.Definer {
		v.weakens(object, "It is not SECURITY DEFINER: it can't read the leases for a role that may not, and refuses it.",
			fmt.Sprintf("ALTER FUNCTION %s SECURITY DEFINER;", object))
	}
	if want.Definer && row.Definer && !row.Locks {
		v.weakens(object, fmt.Sprintf("It has the rights of its owner, %s, who may not lock a lease: it refuses whoever calls it.", row.Owner),
			fmt.Sprintf("ALTER FUNCTION %s OWNER TO %s;", object, ident(row.TablesOwner)))
	}
	if want.Config != row.Config {
		v.weakens(object, "It has not the search_path that it was made with: an object in another schema, or a temporary one, can take the place of "+
			"what it reads.", makeFunctions)
	}
	if changed := changes(want, row); len(changed) > 0 {
		v.weakens(object, fmt.Sprintf("It was changed, %s: it may let pass what it should refuse, or refuse what it should let pass.",
			strings.Join(changed, ", ")), makeFunctions)
	}
	if row.Everybody && want.Name != finisher {
		v.note(object, "Every role may call it.", fmt.Sprintf("REVOKE ALL ON FUNCTION %s FROM PUBLIC;", object))
	}
}

// changes are the parts of a function that are not as the migrations leave them, but for
// those that judgeFunction tells by themselves.
func changes(want migrations.Function, row doctordb.FunctionListRow) (changed []string) {
	for _, part := range []struct {
		name string
		same bool
	}{
		{"its text", lines(row.Body) == lines(want.Body)},
		{"its language", row.Language == want.Language},
		{"its volatility", row.Volatility == want.Volatile},
		{"what it does with NULL", row.Strict == want.Strict},
		{"whose rights it has", want.Definer || !row.Definer},
		{"its kind", row.Plain},
	} {
		if !part.same {
			changed = append(changed, part.name)
		}
	}
	return changed
}

// lines is a text without the ends of its lines that tools put into it.
func lines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }
