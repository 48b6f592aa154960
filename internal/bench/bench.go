// Package bench measures what Gatepost costs on a given database, as ratios to the
// statements that a user would otherwise write.
//
// What is compared runs in turns on the same server: some of ours, some of the plain
// statement, and then the other way round, so that a machine that gets slower or faster
// meanwhile does so for both. A pair is a block of each; its ratio is that of the medians
// of the two, and the ratio of a row is the median over the pairs. What can be counted is
// counted, apart from the timing.
//
// It is not a benchmark of PostgreSQL or of the machine: the times are shown, and the
// ratios are meant. They hold for a server that is far from its limits.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options say how much is measured. The zero value works.
type Options struct {
	// Rows names the rows to measure; none is all.
	Rows []string
	// Pairs is how many pairs of blocks a ratio is the median of. Defaults to 9.
	Pairs int
	// Block is how many operations a block has. Defaults to 300.
	Block int
	// Load is how many rows the imports load. Defaults to 100,000.
	Load int
	// Progress is told before each pair of each row. Defaults to nobody.
	Progress func(row string, pair, pairs int)
}

// Defaults of Options.
const (
	DefaultPairs = 9
	DefaultBlock = 300
	DefaultLoad  = 100_000
)

// Report is what was measured, and on what.
type Report struct {
	Server  Server   `json:"server"`
	Pairs   int      `json:"pairs"`
	Block   int      `json:"block"`
	Load    int      `json:"load"`
	Results []Result `json:"rows"`
}

// ErrUnknownRow says that there is no row of that name.
var ErrUnknownRow = errors.New("bench: unknown row")

// Run measures on the database of cfg, which must have Gatepost's schema. It makes a
// schema of its own and rows under names of its own in gatepost's tables, and removes
// them in the end, also when ctx ends; one that is killed leaves a schema that begins
// with gatepost_bench_. The role needs CREATE on the database; where it may not delete
// leases or keys, those stay until they are collected.
//
// Errors: ErrUnknownRow; ctx's; what the database refused. What was measured until then
// is in the report.
func Run(ctx context.Context, cfg *pgxpool.Config, opts Options) (report Report, err error) {
	opts = opts.withDefaults()
	report = Report{Pairs: opts.Pairs, Block: opts.Block, Load: opts.Load}
	picked, err := pick(opts.Rows)
	if err != nil {
		return report, err
	}
	e, err := open(ctx, cfg, opts)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	if report.Server, err = look(ctx, e.admin); err != nil {
		return report, err
	}
	for _, row := range picked {
		result, err := e.measure(ctx, row)
		if err != nil {
			return report, fmt.Errorf("measure %s: %w", row.Name, err)
		}
		report.Results = append(report.Results, result)
	}
	return report, nil
}

func (o Options) withDefaults() Options {
	o.Pairs = orDefault(o.Pairs, DefaultPairs)
	o.Block = orDefault(o.Block, DefaultBlock)
	o.Load = orDefault(o.Load, DefaultLoad)
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return o
}

func orDefault(n, def int) int {
	if n <= 0 {
		return def
	}
	return n
}

// pick finds rows by their names; all of them for none.
func pick(names []string) ([]Row, error) {
	if len(names) == 0 {
		return rows, nil
	}
	var picked []Row
	for _, row := range rows {
		if slices.Contains(names, row.Name) {
			picked = append(picked, row)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name }) {
			return nil, fmt.Errorf("%w %q", ErrUnknownRow, name)
		}
	}
	return picked, nil
}
