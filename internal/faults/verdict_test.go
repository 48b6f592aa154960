//go:build linux

package faults_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// verdict is what the checks of a run found.
type verdict struct {
	looked     map[string]int // at how many things, by check
	violations map[string][]string
}

// look counts things that a check looks at.
func (v *verdict) look(check string, n int) { v.looked[check] += n }

func (v *verdict) violated(check, format string, args ...any) {
	v.violations[check] = append(v.violations[check], fmt.Sprintf(format, args...))
}

// evidence is all that the checks go by.
type evidence struct {
	*conductor
	verdict
	h history
	// lossy says that the server may have lost what it had acknowledged, by a crash
	// with synchronous_commit off, or by a failover.
	lossy bool
}

// check runs all checks and prints the table.
func (c *conductor) check(h history) {
	c.t.Helper()
	start := time.Now()
	e := &evidence{conductor: c, h: h, verdict: verdict{map[string]int{}, map[string][]string{}}}
	e.lossy = c.defaults["synchronous_commit"] == "off" && c.kinds["crash"].inject != nil
	for _, check := range []func(*evidence){
		(*evidence).tokensRise, (*evidence).fencesHold, (*evidence).ownersOnly, (*evidence).onceAKey,
		(*evidence).lostInTime, (*evidence).answersHold, (*evidence).takenOver, (*evidence).guardsHold, (*evidence).linear,
	} {
		check(e)
	}
	c.t.Log("\n" + e.table() + fmt.Sprintf("checked in %s\n", time.Since(start).Round(time.Millisecond)))
	e.fail(c.t)
}

// fail reports the violations, the first few of each check.
func (e *evidence) fail(t *testing.T) {
	t.Helper()
	for _, check := range slices.Sorted(maps.Keys(e.violations)) {
		found := e.violations[check]
		t.Errorf("%s: %d violations (seed %d)\n\t%s", check, len(found), e.seed, strings.Join(found[:min(5, len(found))], "\n\t"))
	}
	if t.Failed() {
		for _, p := range e.past {
			t.Logf("fault %s  at %d ns", p.fault, p.from)
		}
	}
}

// table is the run in figures.
func (e *evidence) table() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "operation\tok\tother\tunknown\n")
	for k, ops := range counted(e.h) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", k, ops[0], ops[1], ops[2])
	}
	fmt.Fprintf(w, "\nfault\tmade\n")
	for name, n := range e.faults() {
		fmt.Fprintf(w, "%s\t%d\n", name, n)
	}
	fmt.Fprintf(w, "\ncheck\tlooked at\tviolations\n")
	for _, check := range slices.Sorted(maps.Keys(e.looked)) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", check, e.looked[check], len(e.violations[check]))
	}
	_ = w.Flush()
	return text.String()
}

// query calls fn for each row of a query over what the database kept.
func (e *evidence) query(sql string, args []any, into []any, fn func()) {
	e.t.Helper()
	rows, err := e.cluster.admin().Query(e.t.Context(), sql, args...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, into, func() error { fn(); return nil })
	}
	if err != nil {
		e.t.Fatalf("%s: %v", sql, err)
	}
}

// count is the one number of a query.
func (e *evidence) count(sql string, args ...any) (n int) {
	e.t.Helper()
	e.query(sql, args, []any{&n}, func() {})
	return n
}

// refute runs a query whose rows are violations, each as one text.
func (e *evidence) refute(check, sql string, args ...any) {
	e.t.Helper()
	var text string
	e.query(sql, args, []any{&text}, func() { e.violated(check, "%s", text) })
}
