package doctor

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/pglock"
)

// checkGuards looks for parts of guarded tables that are open.
func checkGuards(ctx context.Context, v *visit) error {
	guards, err := pglock.Guards(ctx, v.db)
	for _, g := range guards {
		for _, hole := range g.Holes {
			v.weakens(hole.Table.Sanitize(), holeText(g, hole), guardAgain(g, hole.Problem)...)
		}
	}
	return err
}

func holeText(g pglock.Guard, hole pglock.GuardHole) string {
	switch hole.Problem {
	case pglock.GuardMissing:
		return fmt.Sprintf("It belongs to the guarded table %s, but came after the guard: TRUNCATE of it, and all writes to a child "+
			"that inherits, need no fence.", g.Table.Sanitize())
	case pglock.GuardDisabled:
		return "Triggers of its guard are disabled: who holds no lease can write to it."
	case pglock.GuardRowsMissing:
		return "Triggers of its guard were dropped: who holds no lease can write rows of it."
	case pglock.GuardColumnMissing:
		return fmt.Sprintf("The column %s, which named each row's lease, was renamed or dropped: all writes are refused.", ident(g.LeaseColumn))
	default:
		return fmt.Sprintf("Its guard has a hole: %s.", hole.Problem)
	}
}

// guardAgain puts a guard on anew, in one transaction, so that the table is never open.
// What is missing is mended by the second half alone.
func guardAgain(g pglock.Guard, problem pglock.GuardProblem) []string {
	table := literal(g.Table.Sanitize())
	by := literal(g.Lease)
	switch {
	case problem == pglock.GuardColumnMissing:
		by = "lease_column => 'COLUMN'"
	case g.LeaseColumn != "":
		by = "lease_column => " + literal(g.LeaseColumn)
	}
	guard := fmt.Sprintf("SELECT gatepost.guard_table(%s, %s);", table, by)
	if problem == pglock.GuardMissing || problem == pglock.GuardRowsMissing {
		return []string{guard}
	}
	return []string{fmt.Sprintf("BEGIN; SELECT gatepost.unguard_table(%s); %s COMMIT;", table, guard)}
}

// checkSubscribed looks for guarded tables that are written to by replication, which
// fires no trigger.
func checkSubscribed(ctx context.Context, v *visit) error {
	rows, err := v.q.GuardSubscribed(ctx)
	for _, r := range rows {
		v.weakens(r.TableName, fmt.Sprintf("It is guarded, and the subscription %s writes to it: what is replicated needs no fence.", r.Subscription),
			"-- fence on the publisher, and let nobody but the subscription write here; or: ALTER PUBLICATION ... DROP TABLE, there")
	}
	return err
}

// function is one of Gatepost's as the migrations leave it.
type function struct {
	name     string
	count    int  // with different arguments
	definer  bool // runs as its owner, who may read the leases
	pathless bool // has no search_path of its own, for speed
}

var functions = []function{
	{name: "fence", count: 2, definer: true},
	{name: "fenced", count: 1},
	{name: "guard_row", count: 1, definer: true},
	{name: "guard_statement", count: 1, definer: true},
	{name: "guard_table", count: 1},
	{name: "hold_fences", count: 1},
	{name: "idempotency_keys_finished", count: 1, pathless: true},
	{name: "present", count: 1},
	{name: "refuse", count: 1},
	{name: "sequencer_name", count: 1},
	{name: "try_fence", count: 1, definer: true},
	{name: "unguard_table", count: 1},
}

// checkFunctions looks whether Gatepost's functions run as they should: as their owner,
// and with a search_path that nobody can slip another object into.
func checkFunctions(ctx context.Context, v *visit) error {
	rows, err := v.q.FunctionList(ctx)
	if err != nil {
		return err
	}
	for _, want := range functions {
		n := 0
		for _, f := range rows {
			if f.Name != want.name {
				continue
			}
			n++
			v.judgeFunction(want, fmt.Sprintf("gatepost.%s(%s)", f.Name, f.Arguments), f.Definer, f.Path)
		}
		if n < want.count {
			v.weakens(qualified(want.name), "The function is missing: fences and guards that call it are refused.", rebuild()...)
		}
	}
	return nil
}

func (v *visit) judgeFunction(want function, object string, definer, path bool) {
	if want.definer && !definer {
		v.weakens(object, "It is not SECURITY DEFINER: it can't read the leases for a role that may not, and refuses it.",
			fmt.Sprintf("ALTER FUNCTION %s SECURITY DEFINER;", object))
	}
	if !want.pathless && !path {
		v.weakens(object, "It has no search_path of its own: an object in another schema, or a temporary one, can take the place of what it reads.",
			fmt.Sprintf("ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp;", object))
	}
}
