package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// checkGuards looks for parts of guarded tables that are open.
func checkGuards(ctx context.Context, v *visit) error {
	guards, err := pglock.Guards(ctx, v.db)
	if err != nil {
		return err
	}
	for _, g := range guards {
		if anothers(g, guards) {
			continue // told with its parent's
		}
		for _, holes := range byProblem(g.Holes) {
			v.weakens(g.Table.Sanitize(), holeText(g, holes), guardAgain(g, holes, guards)...)
		}
	}
	return v.tellImpostors(ctx, guards)
}

// anothers says that a guard is on a table that another guard should be on.
func anothers(g pglock.Guard, guards []pglock.Guard) bool {
	return slices.ContainsFunc(guards, func(parent pglock.Guard) bool {
		return !slices.Equal(parent.Table, g.Table) && slices.ContainsFunc(parent.Holes, func(hole pglock.GuardHole) bool {
			return slices.Equal(hole.Table, g.Table)
		})
	})
}

// byProblem puts the holes of one guard together that have one remedy, in the order of
// the first of each.
func byProblem(holes []pglock.GuardHole) (groups [][]pglock.GuardHole) {
	for _, hole := range holes {
		i := slices.IndexFunc(groups, func(g []pglock.GuardHole) bool { return g[0].Problem == hole.Problem })
		if i < 0 {
			i = len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], hole)
	}
	return groups
}

func holeText(g pglock.Guard, holes []pglock.GuardHole) string {
	which := whichTables(g, holes)
	switch holes[0].Problem {
	case pglock.GuardMissing:
		return which + " came after the guard, or lost it: TRUNCATE that names a partition, and all writes that name a child, need no fence."
	case pglock.GuardStatementMissing:
		return "The guard's trigger for statements was dropped, or changed to fire for less: TRUNCATE and statements that touch no row need no fence."
	case pglock.GuardDisabled:
		return "Triggers of its guard are disabled, of " + which + ": who holds no lease can write there."
	case pglock.GuardRowsMissing:
		return "The guard lacks triggers for rows, of " + which + ": they were dropped or changed, or it has become a partition or a child " +
			"of a table that is not guarded. Who holds no lease can write rows there."
	case pglock.GuardColumnMissing:
		return columnHoleText(g, holes[0])
	default:
		return fmt.Sprintf("Its guard has a hole, %s: %s.", holes[0].Problem, which)
	}
}

func columnHoleText(g pglock.Guard, hole pglock.GuardHole) string {
	if hole.RenamedTo != "" {
		return fmt.Sprintf("The column %s, which named each row's lease, is called %s now: writes are refused, except in a transaction "+
			"that has written to it before.", ident(g.LeaseColumn), ident(hole.RenamedTo))
	}
	return fmt.Sprintf("The column %s, which named each row's lease, was dropped, and the triggers for rows with it: who holds any lease "+
		"can write all rows.", ident(g.LeaseColumn))
}

// whichTables names the tables with a hole, the first of many.
func whichTables(g pglock.Guard, holes []pglock.GuardHole) string {
	if len(holes) == 1 && slices.Equal(holes[0].Table, g.Table) {
		return "the table itself"
	}
	var names []string
	for _, hole := range holes[:min(len(holes), shown)] {
		names = append(names, hole.Table.Sanitize())
	}
	list := strings.Join(names, ", ")
	if more := len(holes) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	if len(holes) == 1 {
		return list
	}
	return fmt.Sprintf("%d tables (%s)", len(holes), list)
}

// guardAgain puts a guard on anew, in one transaction, so that the table is never open.
func guardAgain(g pglock.Guard, holes []pglock.GuardHole, guards []pglock.Guard) []string {
	table, hole := literal(g.Table.Sanitize()), holes[0]
	again := func(by string) string { return fmt.Sprintf("SELECT gatepost.guard_table(%s, %s);", table, by) }
	switch {
	case hole.Problem == pglock.GuardColumnMissing && hole.RenamedTo != "":
		return []string{again("lease_column => " + literal(hole.RenamedTo))}
	case hole.Problem == pglock.GuardColumnMissing:
		return []string{
			"-- guard it by another column, or by one lease; or take the guard off. One of:",
			"-- " + again("lease_column => 'COLUMN'"),
			"-- " + again("'LEASE'"),
			fmt.Sprintf("-- SELECT gatepost.unguard_table(%s);", table),
		}
	}
	by := literal(g.Lease)
	if g.LeaseColumn != "" {
		by = "lease_column => " + literal(g.LeaseColumn)
	}
	own := ownGuards(holes, guards)
	if own == "" {
		return []string{again(by)}
	}
	return []string{"BEGIN; " + own + again(by) + " COMMIT;"}
}

// ownGuards drops what keeps a partition from its parent's guard: one of its own, of
// another lease, from before it was attached.
func ownGuards(holes []pglock.GuardHole, guards []pglock.Guard) (drops string) {
	for _, hole := range holes {
		if hole.Problem == pglock.GuardMissing && slices.ContainsFunc(guards, func(g pglock.Guard) bool { return slices.Equal(g.Table, hole.Table) }) {
			drops += fmt.Sprintf("DROP TRIGGER gatepost_guard ON %s; ", hole.Table.Sanitize())
		}
	}
	return drops
}

// tellImpostors tells of triggers that have a guard's name and do something else, on
// tables that have no guard otherwise: the others' remedy replaces them.
func (v *visit) tellImpostors(ctx context.Context, guards []pglock.Guard) error {
	told := map[string]bool{}
	for _, g := range guards {
		told[g.Table.Sanitize()] = true
		for _, hole := range g.Holes {
			told[hole.Table.Sanitize()] = true
		}
	}
	rows, err := v.q.GuardImpostors(ctx)
	for _, r := range rows {
		table := pgx.Identifier{r.TableSchema, r.TableName}.Sanitize()
		if told[table] {
			continue
		}
		v.weakens(table, fmt.Sprintf("The trigger %s has the name of a guard's and is none: it calls %s. If the table was guarded, it is not any more.",
			r.Name, r.Function), fmt.Sprintf("DROP TRIGGER %s ON %s;", ident(r.Name), table), "-- and guard it: gatepost guard add "+
			shellWord(table)+" --lease LEASE")
	}
	return err
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
