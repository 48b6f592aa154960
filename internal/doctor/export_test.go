package doctor

import "time"

// WithClock is options under which this machine's clock is another one.
func (o Options) WithClock(now func() time.Time) Options {
	o.now = now
	return o
}

// InventoryNames are the tables that the inventory has.
func InventoryNames() (names []string) {
	for _, t := range inventory {
		names = append(names, t.name)
	}
	return names
}

// Constraint is one that the inventory has.
type Constraint struct{ Of, Name, Definition string }

// Constraints are those that the inventory has, in order.
func Constraints() (all []Constraint) {
	for _, c := range constraints {
		all = append(all, Constraint{c.of, c.name, c.definition})
	}
	return all
}

// Needs are the privileges that a role is asked for, as "PRIVILEGE table column".
func Needs() (all []string) {
	for _, n := range needs {
		for _, c := range append([]string{}, n.columns...) {
			all = append(all, n.privilege+" "+n.table+" "+c)
		}
		if n.columns == nil {
			all = append(all, n.privilege+" "+n.table+" ")
		}
	}
	return all
}

// JudgeVersion is what the check of the server's version says of one.
func JudgeVersion(major int) []Finding {
	v := &visit{result: &Result{}}
	v.judgeVersion(major)
	return v.result.Findings
}

// JudgeStandbys is what the check of replication says.
func JudgeStandbys(synchronous int, behind []string, waits bool) []Finding {
	v := &visit{result: &Result{}}
	v.judgeStandbys(synchronous, behind, waits)
	return v.result.Findings
}

// WithDefaults is what Examine makes of options.
func (o Options) WithDefaults() Options { return o.withDefaults() }
