package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func guardLsCommand(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [TABLE...]",
		Short: "List the guarded tables, and what passes by their guards",
		Long: `List the guarded tables, all or those that are named.

  TABLE       the table; its partitions and children are guarded with it
  GUARDED BY  the lease whose fence it demands, or the column that names it
  OPEN        what passes by the guard:
              unguarded  a partition or child that came after the guard, or
                         lost it: TRUNCATE of the partition, all that names
                         the child
              statement  the trigger for statements was dropped or changed:
                         TRUNCATE, statements that touch no row
              disabled   triggers that don't fire
              rows       triggers for rows were dropped or changed, or are
                         missing although it became a partition or child of a
                         table that is not guarded: what goes through that
              column     the column was renamed or dropped

gatepost guard add closes all of these; for the last, with the column's new name.
What passes by any guard is listed in docs/guards.md.`,
		Example: `  gatepost guard ls
  gatepost guard ls --json | jq -r '.[] | select(.holes != []) | .name'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				guards, err := readGuards(ctx, db, args)
				if err != nil {
					return err
				}
				return printGuards(cmd, guards, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// readGuards reads all guards, or those of the named tables, in whatever schema where the
// name has none.
func readGuards(ctx context.Context, db database, names []string) ([]pglock.Guard, error) {
	guards, err := pglock.Guards(ctx, db.pool)
	if err != nil || len(names) == 0 {
		return guards, err
	}
	var tables []pgx.Identifier
	for _, name := range names {
		table, err := operator.ParseTable(ctx, db.pool, name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(guards, func(g pglock.Guard) bool { return is(g, table) }) {
			if present, err := operator.HasTable(ctx, db.pool, table); err != nil || !present {
				return nil, cmp.Or(err, noTable(table))
			}
		}
		tables = append(tables, table)
	}
	return slices.DeleteFunc(guards, func(g pglock.Guard) bool {
		return !slices.ContainsFunc(tables, func(named pgx.Identifier) bool { return is(g, named) })
	}), nil
}

// is says that a guard's table is named so, the schema optional.
func is(g pglock.Guard, named pgx.Identifier) bool {
	return slices.Equal(g.Table[max(0, len(g.Table)-len(named)):], named)
}

// guardJSON is a guard as JSON.
type guardJSON struct {
	Schema      string     `json:"schema"`
	Name        string     `json:"name"`
	Lease       string     `json:"lease,omitempty"`
	LeaseColumn string     `json:"lease_column,omitempty"`
	Holes       []holeJSON `json:"holes"`
}

type holeJSON struct {
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
}

func printGuards(cmd *cobra.Command, guards []pglock.Guard, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(guardsJSON(guards))
	}
	if len(guards) == 0 {
		// Not into the output, where a script would take it for a row.
		fmt.Fprintln(cmd.ErrOrStderr(), "No such table is guarded. To guard one: gatepost guard add")
		return nil
	}
	table := cli.Table{Columns: []cli.Column{{Title: "TABLE", Cut: true}, {Title: "GUARDED BY", Cut: true}, {Title: "OPEN", Cut: true}}}
	for _, g := range guards {
		open := cli.Cell{Text: "nothing", Style: cli.Good}
		if len(g.Holes) > 0 {
			open = cli.Cell{Text: holesText(g), Style: cli.Bad}
		}
		table.Rows = append(table.Rows, []cli.Cell{{Text: tableText(g.Table)}, {Text: guardedBy(g.Lease, g.LeaseColumn)}, open})
	}
	return table.Print(cli.ScreenOf(cmd.OutOrStdout()))
}

func guardsJSON(guards []pglock.Guard) []guardJSON {
	all := []guardJSON{}
	for _, g := range guards {
		one := guardJSON{Schema: g.Table[0], Name: g.Table[1], Lease: g.Lease, LeaseColumn: g.LeaseColumn, Holes: []holeJSON{}}
		for _, hole := range g.Holes {
			one.Holes = append(one.Holes, holeJSON{hole.Table[0], hole.Table[1], string(hole.Problem)})
		}
		all = append(all, one)
	}
	return all
}

// holesText names the problem, and the table where it is another one.
func holesText(g pglock.Guard) string {
	var holes []string
	for _, hole := range g.Holes {
		text := string(hole.Problem)
		if !slices.Equal(hole.Table, g.Table) {
			text = tableText(hole.Table) + " " + text
		}
		holes = append(holes, text)
	}
	return strings.Join(holes, ", ")
}

// tableText is a table's name as people write it.
func tableText(table pgx.Identifier) string {
	parts := make([]string, len(table))
	for i, part := range table {
		parts[i] = part
		if part != strings.ToLower(part) || strings.ContainsFunc(part, needsQuotes) {
			parts[i] = pgx.Identifier{part}.Sanitize()
		}
	}
	return cli.Printable(strings.Join(parts, "."))
}

func needsQuotes(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
}
