package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// scaleConnections is what 128 clients at once need, each with up to three.
const scaleConnections = "450"

// scaleReport is what --scale prints as JSON.
type scaleReport struct {
	Source string         `json:"temporary"`
	Sizes  bench.Sizes    `json:"sizes"`
	Rows   []bench.Growth `json:"rows"`
}

func (b *benching) runScale(cmd *cobra.Command) error {
	if b.scale <= 0 || b.scale > 1 || len(b.opts.Rows) > 0 {
		return cli.UsageError{Err: errors.New("--scale is a part of the full size, above 0 and up to 1, and measures all it has: name no rows")}
	}
	ctx := cmd.Context()
	server, err := pgtemp.Start(ctx, &pgtemp.Options{Durable: true, Settings: map[string]string{"max_connections": scaleConnections}})
	if err != nil {
		return err
	}
	report := scaleReport{Source: server.Describe(), Sizes: bench.FullSize.Scaled(b.scale)}
	fmt.Fprintf(cmd.ErrOrStderr(), "Measuring on a temporary %s\n", report.Source)
	report.Rows, err = scaleOn(ctx, server, report.Sizes, newBenchProgress(cli.ScreenOf(cmd.ErrOrStderr())))
	if len(report.Rows) > 0 { // also what was measured before an error
		err = errors.Join(err, b.printScale(cmd, report))
	}
	return errors.Join(err, server.Stop())
}

// scaleOn makes two databases, and measures in them.
func scaleOn(ctx context.Context, server *pgtemp.Server, sizes bench.Sizes, progress benchProgress) ([]bench.Growth, error) {
	defer progress.end()
	var configs [2]*pgxpool.Config
	for i, name := range []string{"gatepost_small", "gatepost_large"} {
		if err := createDatabase(ctx, server.URL(""), name); err != nil {
			return nil, err
		}
		pool, err := migrated(ctx, server.URL(name))
		if err != nil {
			return nil, err
		}
		configs[i] = pool.Config()
		pool.Close()
	}
	return bench.Scale(ctx, configs[0], configs[1], bench.ScaleOptions{Sizes: sizes, Progress: progress.note})
}

func createDatabase(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return err
}

func (b *benching) printScale(cmd *cobra.Command, report scaleReport) error {
	if b.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	return scaleTable(report.Rows).Print(cli.ScreenOf(cmd.OutOrStdout()))
}

func scaleTable(rows []bench.Growth) cli.Table {
	table := cli.Table{Columns: []cli.Column{
		{Title: "OF"},
		{Title: "FROM", Right: true},
		{Title: "TO", Right: true},
		{Title: "WHAT", Cut: true},
		{Title: "P50", Right: true},
		{Title: "P50 THEN", Right: true},
		{Title: "RATIO", Right: true},
		{Title: "P99", Right: true, Extra: 1},
		{Title: "P99 THEN", Right: true, Extra: 1},
		{Title: "RATIO", Right: true, Extra: 1},
		{Title: "A SECOND", Right: true, Extra: 2},
		{Title: "SERVER, CLIENT CPU", Right: true, Extra: 3},
	}}
	for _, r := range rows {
		row := []cli.Cell{
			{Text: r.Of},
			{Text: grouped(r.From.Size)},
			{Text: grouped(r.To.Size)},
			{Text: r.What},
			{Text: took(r.From.P50())},
			{Text: took(r.To.P50())},
			{Text: short(r.P50)},
			{Text: took(r.From.P99())},
			{Text: took(r.To.P99())},
			{Text: short(r.P99)},
			{},
			{},
		}
		if r.To.PerSecond > 0 {
			row[10].Text = fmt.Sprintf("%.0f, then %.0f", r.From.PerSecond, r.To.PerSecond)
			if r.From.ServerUS+r.From.ClientUS > 0 { // else it is not known here
				row[11].Text = processors(r.From) + ", then " + processors(r.To)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// processors are the server's processor time and the client's, each if it is known.
func processors(s bench.Sample) string {
	known := make([]string, 0, 2)
	for _, us := range []float64{s.ServerUS, s.ClientUS} {
		known = append(known, cmp.Or(processor(us), "?"))
	}
	return strings.Join(known, ", ")
}
