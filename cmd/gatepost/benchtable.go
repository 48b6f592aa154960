package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/cli"
)

// printBench prints the server, a warning where commits are not durable, and the table.
func printBench(s cli.Screen, report bench.Report) error {
	lines := s.Wrapped(fmt.Sprintf("PostgreSQL %s, %s, %d operations a block, %s rows an import",
		report.Server.Version, pairsText(report.Pairs), report.Block, grouped(report.Load)), cli.Plain)
	lines = append(lines, benchSettings(report.Server))
	if !report.Server.Durable() {
		lines = append(lines, s.Wrapped("NOT DURABLE: "+strings.Join(report.Server.Weak, ", ")+
			". A commit costs next to nothing here; these ratios say nothing about a server that keeps what it commits.", cli.Bad)...)
	}
	if err := printLines(s.W, append(lines, "")); err != nil {
		return err
	}
	if err := benchTable(report).Print(s); err != nil {
		return err
	}
	work := workTable(report)
	if len(work.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(s.W, "\nWork of one operation, ours / plain:")
	return work.Print(s)
}

func pairsText(n int) string {
	if n == 1 {
		return "1 pair"
	}
	return fmt.Sprintf("%d pairs", n)
}

// benchSettings lists the settings, in lines.
func benchSettings(server bench.Server) string {
	const most = 78
	var b strings.Builder
	width := 0
	for _, name := range bench.Settings() {
		value := server.Settings[name]
		if value == "" {
			continue
		}
		part := name + " " + value
		switch {
		case width == 0:
		case width+len(part) > most:
			b.WriteString(",\n")
			width = 0
		default:
			b.WriteString(", ")
		}
		b.WriteString(part)
		width += len(part) + 2
	}
	return b.String()
}

func benchTable(report bench.Report) cli.Table {
	table := cli.Table{Columns: []cli.Column{
		{Title: "ROW"},
		{Title: "WHAT", Cut: true, Extra: 2},
		{Title: "AGAINST", Cut: true, Extra: 3},
		{Title: "BAR", Right: true},
		{Title: "RATIO", Right: true},
		{Title: "SPREAD"},
		{Title: "OURS", Right: true, Extra: 1},
		{Title: "PLAIN", Right: true, Extra: 1},
	}}
	for _, r := range report.Results {
		table.Rows = append(table.Rows, benchRow(r))
	}
	return table
}

func benchRow(r bench.Result) []cli.Cell {
	row := []cli.Cell{{Text: r.Row}, {Text: r.What}, {Text: r.Against}, {}, {}, {}, {}, {}}
	if r.Bar > 0 {
		row[3].Text = fmt.Sprintf("%.2f", r.Bar)
	}
	if q := r.Ratio; q != nil {
		row[4] = cli.Cell{Text: fmt.Sprintf("%.2f", q.Median), Style: judged(q.Median <= r.Bar)}
		row[5].Text = fmt.Sprintf("%.2f to %.2f", q.Least, q.Most)
		row[6].Text, row[7].Text = took(q.Ours()), took(q.Plain())
	}
	return row
}

func judged(within bool) cli.Style {
	if within {
		return cli.Good
	}
	return cli.Warn
}

// workTable has a column for each kind of work that was counted.
func workTable(report bench.Report) cli.Table {
	var kinds []string
	for _, r := range report.Results {
		for _, c := range r.Counts {
			if !slices.Contains(kinds, c.What) {
				kinds = append(kinds, c.What)
			}
		}
	}
	table := cli.Table{Columns: []cli.Column{{Title: "ROW"}}}
	for i, kind := range kinds {
		table.Columns = append(table.Columns, cli.Column{Title: strings.ToUpper(kind), Right: true, Extra: i})
	}
	for _, r := range report.Results {
		if len(r.Counts) > 0 {
			table.Rows = append(table.Rows, workRow(r, kinds))
		}
	}
	return table
}

func workRow(r bench.Result, kinds []string) []cli.Cell {
	row := make([]cli.Cell, len(kinds)+1)
	row[0].Text = r.Row
	for _, c := range r.Counts {
		cell := cli.Cell{Text: short(c.Each)}
		if c.Plain != nil {
			cell.Text += " / " + short(*c.Plain)
		}
		if c.Bar != nil {
			cell.Text += " (bar " + short(*c.Bar) + ")"
			cell.Style = judged(c.Each <= *c.Bar)
		}
		row[slices.Index(kinds, c.What)+1] = cell
	}
	return row
}

// short is a count, with what follows the point only where it is small.
func short(n float64) string {
	if n >= 20 {
		return strconv.FormatFloat(math.Round(n), 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64)
}

// took is a duration in three digits or so.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

// grouped is a number with a comma at each thousand.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// benchProgress says on a terminal what is measured now; elsewhere it says nothing.
type benchProgress struct{ screen cli.Screen }

func newBenchProgress(s cli.Screen) benchProgress { return benchProgress{s} }

func (p benchProgress) tell(row string, pair, pairs int) {
	if p.screen.Terminal {
		fmt.Fprintf(p.screen.W, "\r\x1b[Kmeasuring %s, %d of %d", row, pair, pairs)
	}
}

func (p benchProgress) end() {
	if p.screen.Terminal {
		fmt.Fprint(p.screen.W, "\r\x1b[K")
	}
}

func (p benchProgress) note(what string) {
	if p.screen.Terminal {
		fmt.Fprintf(p.screen.W, "\r\x1b[K%s", what)
	}
}
