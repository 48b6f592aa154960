package bench

import (
	"context"
	"slices"
)

// Row is one line of the table: something of Gatepost's, and what it is measured
// against.
type Row struct {
	Name string
	// What is measured, and against which plain statements; empty where it is only
	// counted.
	What, Against string
	// Bar is what the ratio should not exceed; 0 for none.
	Bar float64
	// Known is a ratio that was reached on a machine that did nothing else, where that is
	// above the bar; 0 where it isn't.
	Known   float64
	measure func(context.Context, *env, *Result) error
}

// rows in the order of the table.
var rows = []Row{
	{"acquire", "acquire + release", "two UPDATE commits", 1.15, 1.28, measureCycle},
	{"try", "a try that finds it held", "", 0, 0, measureTry},
	{"fenced", "fenced BEGIN, INSERT, COMMIT", "the same unfenced", 1.10, 1.45, measureFenced},
	{"fenced-16", "the same, 16 clients on one token", "16 clients unfenced", 1.30, 1.52, measureFencedCrowd},
	{"renew-16", "a renewal among 16 fenced writers", "among 16 unfenced ones", 2, 0, measureRenewal},
	{"takeover", "takeover from 16 fenced writers", "one of their transactions", 3, 0, measureTakeover},
	{"held-1000", "a heartbeat of 1,000 leases", "", 0, 0, measureHeld},
	{"handoff-1", "hand-off to a waiter", "acquire + release", 4, 0, measureHandOff},
	{"handoff-100", "the same, 100 waiters in a row", "acquire + release", 4, 0, handOff(100)},
	{"handoff-1000", "the same, 1,000 waiters in a row", "acquire + release", 4, 0, handOff(1000)},
	{"idem", "idempotent transaction", "its effect alone", 1.40, 2.39, measureDo},
	{"replay", "replay of a stored reply", "SELECT 1", 1.30, 1.96, measureReplay},
	{"import", "import by CopyOnce", "COPY, same unique index", 1.0, 1.30, measureImport},
	{"import-staged", "the same where a row is there", "COPY, same unique index", 1.6, 1.99, measureImportStaged},
	{"import-again", "the same rows again", "the first time", 0.7, 0, measureImportAgain},
	{"guard", "INSERT ... SELECT, guarded table", "without a guard", 1.05, 0, measureGuard},
	{"guard-rows", "the same, a guard by a column", "without a guard", 1.5, 0, measureGuardRows},
}

// Rows are all rows that can be measured, in the order of the table.
func Rows() []Row { return slices.Clone(rows) }
