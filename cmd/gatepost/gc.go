package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

func gcCommand(conn *connection) *cobra.Command {
	var c collection
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what nobody needs any more: expired keys, names long free",
		Long: `Remove what nobody needs any more:

  idempotency keys  that have expired; never a claim that is running
  free leases       names that nobody has held for a week; their next token is
                    still higher than the last
  dead waiters      of clients that ended without a word

It changes nothing for programs, for which the clock decides; it is about space.
It takes 1,000 rows a transaction, skips those that are locked, and may run
anywhere, also at the same time. LEFT is what was locked, or came meanwhile, or
was too much for --limit. Programs can do the same by themselves: idem's
Store.GC, pglock's Client.GC.

Exit codes: 0 also when there was nothing to remove, or something is left.`,
		Example: `  gatepost gc --dry-run
  gatepost gc --limit 100000
  gatepost gc --json >> gc.log`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.limit < 0 {
				return cli.UsageError{Err: fmt.Errorf("--limit is %d; it must be 0, for all, or more", c.limit)}
			}
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				kinds, err := c.run(ctx, db)
				return errors.Join(c.print(cmd, kinds), err)
			})
		},
	}
	cmd.Flags().BoolVarP(&c.dry, "dry-run", "n", false, "only count what there is to remove")
	cmd.Flags().Int64Var(&c.limit, "limit", 0, "at most so many keys, and as many leases; 0 for all")
	jsonFlag(cmd, &c.json)
	return cmd
}

// collection is one run of gc.
type collection struct {
	dry, json bool
	limit     int64
}

// collected is what became of one kind of garbage.
type collected struct {
	operator.Garbage
	before, after operator.Backlog
	removed       int64
}

// run returns what was done until an error, too.
func (c collection) run(ctx context.Context, db database) (kinds []collected, err error) {
	for _, g := range operator.AllGarbage {
		k := collected{Garbage: g}
		if k.before, err = g.Backlog(ctx, db.pool); err != nil {
			return kinds, err
		}
		k.after = k.before
		if !c.dry {
			k.removed, err = g.Collect(ctx, db.pool, c.limit)
			if err == nil {
				k.after, err = g.Backlog(ctx, db.pool)
			}
		}
		kinds = append(kinds, k)
		if err != nil {
			return kinds, err
		}
	}
	return kinds, nil
}

func (c collection) print(cmd *cobra.Command, kinds []collected) error {
	if len(kinds) == 0 {
		return nil
	}
	if c.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(c.object(kinds))
	}
	return c.table(kinds).Print(cli.ScreenOf(cmd.OutOrStdout()))
}

func (c collection) table(kinds []collected) cli.Table {
	t := cli.Table{Columns: []cli.Column{{Title: "WHAT"}, {Title: "REMOVED", Right: true}, {Title: "LEFT", Right: true}, {Title: "OLDEST"}}}
	if c.dry {
		t.Columns[1].Title = "TO REMOVE"
		t.Columns = append(t.Columns[:2], t.Columns[3])
	}
	for _, k := range kinds {
		oldest := ""
		if k.before.Due > 0 {
			oldest = "due " + cli.Duration(k.before.Age) + " ago"
		}
		row := []cli.Cell{{Text: k.Name}, {Text: cli.Number(k.removed)}, {Text: countText(k.after), Style: leftStyle(k.after)}, {Text: oldest, Style: cli.Faint}}
		if c.dry {
			row = []cli.Cell{row[0], row[2], row[3]}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func countText(b operator.Backlog) string {
	if b.More {
		return "over " + cli.Number(b.Due)
	}
	return cli.Number(b.Due)
}

func leftStyle(b operator.Backlog) cli.Style {
	if b.Due > 0 {
		return cli.Warn
	}
	return cli.Plain
}

// kindJSON is a kind of garbage as JSON.
type kindJSON struct {
	Due      int64 `json:"due"` // before, counted up to operator.MostCounted
	Removed  int64 `json:"removed"`
	Left     int64 `json:"left"`
	OldestMS int64 `json:"oldest_ms"` // how long the oldest had been due
}

func (c collection) object(kinds []collected) map[string]any {
	all := map[string]any{"dry_run": c.dry}
	for _, k := range kinds {
		all[k.JSON] = kindJSON{k.before.Due, k.removed, k.after.Due, k.before.Age.Milliseconds()}
	}
	return all
}
