package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// benching is a command line of gatepost bench.
type benching struct {
	*connection
	opts      bench.Options
	temporary bool
	asJSON    bool
	failAbove float64
	scale     float64
	floors    bool
}

func benchCommand(conn *connection) *cobra.Command {
	b := benching{connection: conn}
	cmd := &cobra.Command{
		Use:   "bench [ROW...]",
		Short: "Measure what Gatepost costs, as ratios to plain statements",
		Long: `Measure on your database what Gatepost costs, as ratios to the statements that
you would otherwise write: all rows of the table, or those that are named.

Ours and the plain statement run in turns, in the order swapped with each turn; a
pair is a block of each. A ratio is that of the medians of two blocks; the table
shows the median over the pairs, and the least and the most of them. Work is counted
apart from that: statements, round trips, transaction ids (xids), bytes of WAL,
fsyncs of the WAL, and buffers: pages of tables and indexes that were looked at.

It works in a schema of its own, gatepost_bench_ and something random, and under
names of its own in gatepost's tables, and removes them at the end, also after
Ctrl-C. It needs the schema gatepost (gatepost migrate up) and the right to create
a schema. It keeps the server busy for a few minutes: don't run it where others
wait for answers.

With --temporary, or when no database is named at all, it starts a temporary
PostgreSQL on this machine with PostgreSQL's own settings for commits: durable ones.

With --scale it measures instead what grows with what, on a temporary PostgreSQL
that it fills: in two databases, with 1,000 names and keys and with 1,000,000 names
and 10,000,000 keys, what the same operations take; with 1 to 128 clients, and with
1 to 100,000 leases that one client holds. --scale 0.01 is a hundredth of that. The
whole takes half an hour and 10 GB of disk.

With --floors it measures what the dearest rows consist of: from the plain statements
to the whole, in steps that each have one part more and that run in turns, with the
processor time of the server, where it is on this machine, and of the client; and what
EXPLAIN says of each statement. docs/costs.md tells what the parts are for.

The exit code is 0 when everything could be measured, whatever came out.

` + benchRows(),
		Example: `  gatepost bench --temporary
  gatepost bench acquire fenced --database-url postgres://localhost/app
  gatepost bench --scale 0.01
  gatepost bench --floors --temporary
  gatepost bench --json | jq '.rows[] | {row, ratio: .ratio.median, bar}'`,
		ValidArgs: benchRowNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.opts.Rows = args
			scaled := cmd.Flags().Changed("scale")
			switch {
			case b.floors && scaled:
				return cli.UsageError{Err: errors.New("--floors and --scale measure different things: run one, then the other")}
			case (b.floors || scaled) && cmd.Flags().Changed("fail-above"):
				return cli.UsageError{Err: errors.New("--fail-above is about the rows' bars, which --floors and --scale have none of: leave it out, or them")}
			case scaled:
				return b.runScale(cmd)
			case b.floors:
				return b.runFloors(cmd)
			default:
				return b.run(cmd)
			}
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&b.opts.Pairs, "pairs", bench.DefaultPairs, "pairs of blocks that a ratio is the median of; 7 or more for figures to quote")
	flags.IntVar(&b.opts.Block, "block", bench.DefaultBlock, "operations in a block")
	flags.IntVar(&b.opts.Load, "rows", bench.DefaultLoad, "rows that the imports load")
	flags.BoolVar(&b.temporary, "temporary", false, "on a temporary PostgreSQL, whatever database is named")
	flags.Float64Var(&b.failAbove, "fail-above", 0, "for CI: exit code 1 when something exceeds its bar, or what is known of it, by more than this factor, three times; 0 is never")
	flags.Float64Var(&b.scale, "scale", 0, "measure what grows with what, at this part of the full size, up to 1")
	flags.BoolVar(&b.floors, "floors", false, "measure what the dearest rows consist of")
	flags.BoolVar(&b.asJSON, "json", false, "print JSON: ratios as numbers, times in microseconds")
	return cmd
}

func benchRowNames() (names []string) {
	for _, row := range bench.Rows() {
		names = append(names, row.Name)
	}
	return names
}

// benchRows lists the rows for the help.
func benchRows() string {
	table := cli.Table{Columns: []cli.Column{{Title: "ROW"}, {Title: "WHAT"}, {Title: "AGAINST"}}}
	for _, row := range bench.Rows() {
		table.Rows = append(table.Rows, []cli.Cell{{Text: row.Name}, {Text: row.What}, {Text: row.Against}})
	}
	return "  " + strings.Join(table.Lines(cli.Screen{}, 0), "\n  ")
}

func (b *benching) run(cmd *cobra.Command) error {
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
	report, err := bench.Run(cmd.Context(), pool.Config(), b.opts)
	if err == nil && b.failAbove > 0 {
		err = b.again(cmd, pool.Config(), &report)
	}
	progress.end()
	report.Server.Source = source
	if len(report.Results) > 0 { // also what was measured before an error
		err = errors.Join(err, b.print(cmd, report))
	}
	if err == nil && b.failAbove > 0 {
		err = tooDear(report, b.failAbove)
	}
	return err
}

func (b *benching) check() error {
	for name, n := range map[string]int{"--pairs": b.opts.Pairs, "--block": b.opts.Block, "--rows": b.opts.Load} {
		if n < 1 {
			return cli.UsageError{Err: fmt.Errorf("%s must be at least 1", name)}
		}
	}
	for _, name := range b.opts.Rows {
		if !slices.Contains(benchRowNames(), name) {
			return cli.UsageError{Err: fmt.Errorf("there is no row %q; the rows are %s", name, strings.Join(benchRowNames(), ", "))}
		}
	}
	return nil
}

// openForBench connects, or starts a temporary server and says so. The caller calls
// stop.
func (b *benching) openForBench(cmd *cobra.Command) (pool *pgxpool.Pool, source string, stop func(), err error) {
	if !b.temporary && b.named() {
		pool, err := cli.SourceOf(b.url).Connect(cmd.Context()) // with statements prepared, as a program has them
		if err != nil {
			return nil, "", nil, err
		}
		return pool, "", pool.Close, nil
	}
	server, err := pgtemp.Start(cmd.Context(), &pgtemp.Options{Durable: true})
	if err != nil {
		return nil, "", nil, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Measuring on a temporary %s\n", server.Describe())
	pool, err = migrated(cmd.Context(), server.URL(""))
	if err != nil {
		return nil, "", nil, errors.Join(err, server.Stop())
	}
	return pool, server.Describe(), func() {
		pool.Close()
		if err := server.Stop(); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "gatepost:", err)
		}
	}, nil
}

// named says whether a database was named in any of the ways there are.
func (b *benching) named() bool {
	return b.url != "" || slices.ContainsFunc([]string{
		"DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE",
	}, func(name string) bool { return os.Getenv(name) != "" })
}

// migrated is a pool on a new database, with the schema in it.
func migrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := cli.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func (b *benching) print(cmd *cobra.Command, report bench.Report) error {
	if b.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	return printBench(cli.ScreenOf(cmd.OutOrStdout()), report)
}

// attempts is how often something is measured before it counts as too dear: what the
// machine does besides makes it dearer, and nothing makes it cheaper.
const attempts = 3

// again measures once more what is too dear, and keeps the better of the two.
func (b *benching) again(cmd *cobra.Command, cfg *pgxpool.Config, report *bench.Report) error {
	for range attempts - 1 {
		opts := b.opts
		opts.Rows = nil
		for _, r := range report.Results {
			if len(r.Misses(b.failAbove)) > 0 {
				opts.Rows = append(opts.Rows, r.Row)
			}
		}
		if len(opts.Rows) == 0 {
			return nil
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Measuring again: %s\n", strings.Join(opts.Rows, ", "))
		once, err := bench.Run(cmd.Context(), cfg, opts)
		if err != nil {
			return err
		}
		for _, r := range once.Results {
			i := slices.IndexFunc(report.Results, func(was bench.Result) bool { return was.Row == r.Row })
			report.Results[i] = cheaper(report.Results[i], r, b.failAbove)
		}
	}
	return nil
}

// cheaper is the one of two results that misses less, or whose ratio is lower.
func cheaper(was, is bench.Result, factor float64) bench.Result {
	missed, misses := len(was.Misses(factor)), len(is.Misses(factor))
	if misses < missed || misses == missed && is.Ratio != nil && is.Ratio.Median < was.Ratio.Median {
		return is
	}
	return was
}

// tooDear is an error that names the rows beyond their bars, and beyond what is known.
func tooDear(report bench.Report, factor float64) error {
	var rows []string
	for _, r := range report.Results {
		if what := r.Misses(factor); len(what) > 0 {
			rows = append(rows, r.Row+" ("+strings.Join(what, ", ")+")")
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return fmt.Errorf("more than %g times the bar: %s", factor, strings.Join(rows, ", "))
}
