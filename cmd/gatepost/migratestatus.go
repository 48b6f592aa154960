package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

func migrateStatus(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied; exit code 1 when one is missing",
		Long: `Show which migrations are applied, and when. It only reads.

Exit codes: 0 when all are applied that this program has, 1 when one is missing.`,
		Example: `  gatepost migrate status
  gatepost migrate status --json | jq '.[] | select(.applied | not) | .name'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := conn.open(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			all, err := migrations.Status(cmd.Context(), pool)
			if err != nil {
				return err
			}
			if err := printStatus(cmd, all, asJSON); err != nil {
				return err
			}
			if pending := countPending(all); pending > 0 {
				if other, err := migrations.OtherTool(cmd.Context(), pool); err != nil || other {
					return cmp.Or(err, migrations.ErrOtherTool)
				}
				return fmt.Errorf("%d of %d migrations are missing; run: gatepost migrate up", pending, len(all))
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printStatus(cmd *cobra.Command, all []migrations.MigrationStatus, asJSON bool) error {
	if asJSON {
		for i := range all {
			all[i].AppliedAt = all[i].AppliedAt.UTC()
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
	}
	t := cli.Table{Columns: []cli.Column{{Title: "VERSION", Right: true}, {Title: "NAME", Cut: true}, {Title: "APPLIED"}}}
	for _, m := range all {
		name, applied := cli.Cell{Text: m.Name}, cli.Cell{Text: "no", Style: cli.Bad}
		if m.Name == "" {
			name = cli.Cell{Text: "of a newer gatepost than this", Style: cli.Warn}
		}
		if m.Applied {
			applied = cli.Cell{Text: cli.Clock(m.AppliedAt)}
		}
		t.Rows = append(t.Rows, []cli.Cell{{Text: strconv.FormatInt(m.Version, 10)}, name, applied})
	}
	return t.Print(cli.ScreenOf(cmd.OutOrStdout()))
}

func countPending(all []migrations.MigrationStatus) (n int) {
	for _, m := range all {
		if !m.Applied {
			n++
		}
	}
	return n
}

// migrationChange is what up and down print.
type migrationChange struct {
	Applied int `json:"applied"`
	Known   int `json:"known"`
	Change  int `json:"change"` // down: negative
}

// withStatus runs fn on the database and says how many migrations it changed.
func withStatus(cmd *cobra.Command, conn *connection, asJSON bool, fn func(*pgxpool.Pool) error) error {
	pool, err := conn.open(cmd.Context())
	if err != nil {
		return err
	}
	defer pool.Close()
	before, err := migrations.Status(cmd.Context(), pool)
	if err != nil {
		return err
	}
	if err := fn(pool); err != nil {
		return cli.WithSchema(cmd.Context(), pool, err)
	}
	after, err := migrations.Status(cmd.Context(), pool)
	if err != nil {
		return err
	}
	c := migrationChange{Applied: len(after) - countPending(after), Known: len(after)}
	c.Change = c.Applied - (len(before) - countPending(before))
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d of %d migrations are applied (%+d)\n", c.Applied, c.Known, c.Change)
	return err
}
