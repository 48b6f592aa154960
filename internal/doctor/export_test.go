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
