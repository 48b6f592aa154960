package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
)

// floorReport is what --floors prints as JSON.
type floorReport struct {
	Server bench.Server  `json:"server"`
	Pairs  int           `json:"pairs"`
	Block  int           `json:"block"`
	Floors []bench.Floor `json:"floors"`
}

func (b *benching) runFloors(cmd *cobra.Command) error {
	if len(b.opts.Rows) > 0 {
		return cli.UsageError{Err: errors.New("--floors measures all that it has: name no rows")}
	}
	if err := b.check(); err != nil {
		return err
	}
	pool, source, stop, err := b.openForBench(cmd)
	if err != nil {
		return err
	}
	defer stop()
	progress := newBenchProgress(cli.ScreenOf(cmd.ErrOrStderr()))
	b.opts.Progress = progress.tell
	report := floorReport{Pairs: b.opts.Pairs, Block: b.opts.Block}
	report.Server, report.Floors, err = bench.Floors(cmd.Context(), pool.Config(), b.opts)
	progress.end()
	report.Server.Source = source
	if len(report.Floors) > 0 { // also what was measured before an error
		err = errors.Join(err, b.printFloors(cmd, report))
	}
	return err
}

func (b *benching) printFloors(cmd *cobra.Command, report floorReport) error {
	if b.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	s := cli.ScreenOf(cmd.OutOrStdout())
	fmt.Fprintf(s.W, "PostgreSQL %s, %s, %d operations a block\n%s\n", report.Server.Version, pairsText(report.Pairs), report.Block, benchSettings(report.Server))
	for _, f := range report.Floors {
		fmt.Fprintln(s.W)
		if err := floorTable(f).Print(s); err != nil {
			return err
		}
	}
	for _, f := range report.Floors {
		for _, p := range f.Plans {
			fmt.Fprintf(s.W, "\n%s:\n  %s\n", p.Statement, strings.Join(p.Lines, "\n  "))
		}
	}
	return nil
}

func floorTable(f bench.Floor) cli.Table {
	table := cli.Table{Columns: []cli.Column{
		{Title: strings.ToUpper(f.Row)},
		{Title: "RATIO", Right: true},
		{Title: "SPREAD"},
		{Title: "SERVER CPU", Right: true},
		{Title: "CLIENT CPU", Right: true},
	}}
	for _, c := range f.Steps[0].Counts {
		table.Columns = append(table.Columns, cli.Column{Title: strings.ToUpper(c.What), Right: true, Extra: 1})
	}
	for _, s := range f.Steps {
		row := []cli.Cell{
			{Text: s.What},
			{Text: fmt.Sprintf("%.2f", s.Ratio.Median)},
			{Text: fmt.Sprintf("%.2f to %.2f", s.Ratio.Least, s.Ratio.Most)},
			{Text: processor(s.ServerUS)},
			{Text: processor(s.ClientUS)},
		}
		for _, c := range s.Counts {
			row = append(row, cli.Cell{Text: short(c.Each)})
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// processor is processor time, where it is known.
func processor(us float64) string {
	if us == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs", us)
}
