package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

func migrateCommand(conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema gatepost into a database, or out of it",
		Long: `Bring the schema gatepost into a database, or out of it. Everything is in that
schema, the version table too; other migrations in the database are not touched.
Use a direct connection, not one through a pooler in transaction mode.`,
		// Without this, cobra shows the help for an unknown word and succeeds.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return cli.UsageError{Err: fmt.Errorf("migrate %s is not known; use up, down, status, sql or grants", args[0])}
		},
	}
	cmd.AddCommand(migrateUp(conn), migrateDown(conn), migrateStatus(conn), migrateSQL())
	for _, sub := range cmd.Commands() {
		sub.Args = noArgs
	}
	cmd.AddCommand(migrateGrants())
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return cli.UsageError{Err: err}
	}
	return nil
}

func migrateUp(conn *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Long: `Apply the migrations that are missing. Any number of processes may do so at the
same moment.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStatus(cmd, conn, func(pool *pgxpool.Pool) error {
				return migrations.Up(cmd.Context(), pool)
			})
		},
	}
}

func migrateDown(conn *connection) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Drop Gatepost's tables and all that is in them",
		Long: `Undo all migrations: drop Gatepost's tables and all that is in them, object by
object. It refuses while a lease is held, unless --force is given. The schema
and its version table stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStatus(cmd, conn, func(pool *pgxpool.Pool) error {
				if err := inUse(cmd, pool); err != nil && !force {
					return err
				}
				return migrations.Down(cmd.Context(), pool)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while leases are held, which their holders lose, and tables guarded")
	return cmd
}

// inUse says what goes to waste with the tables.
func inUse(cmd *cobra.Command, pool *pgxpool.Pool) error {
	if err := noLeaseHeld(cmd, pool); err != nil {
		return err
	}
	guards, err := pglock.Guards(cmd.Context(), pool)
	if err != nil || len(guards) == 0 { // an old schema has none
		return nil
	}
	table := tableText(guards[0].Table)
	return fmt.Errorf("%s is guarded; take the guard off first, or use --force: gatepost guard remove %s", table, table)
}

// noLeaseHeld looks before the tables are dropped; a lease that is acquired
// between the look and the drop is lost like with --force.
func noLeaseHeld(cmd *cobra.Command, pool *pgxpool.Pool) error {
	var present bool
	err := pool.QueryRow(cmd.Context(), `SELECT to_regclass('gatepost.leases') IS NOT NULL`).Scan(&present)
	if err != nil || !present {
		return err
	}
	var held int
	var holder string
	err = pool.QueryRow(cmd.Context(), `SELECT count(*), coalesce(min(holder), '') FROM gatepost.leases
		WHERE nonce IS NOT NULL AND expires_at > clock_timestamp()`).Scan(&held, &holder)
	if err == nil && held > 0 {
		err = fmt.Errorf("%d leases are held, one by %s; stop their holders first, or use --force", held, holder)
	}
	return err
}

func migrateStatus(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied; exit code 1 when one is missing",
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
			if err := printStatus(cmd.OutOrStdout(), all, asJSON); err != nil {
				return err
			}
			if pending := countPending(all); pending > 0 {
				return fmt.Errorf("%d of %d migrations are missing; run: gatepost migrate up", pending, len(all))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func migrateSQL() *cobra.Command {
	return &cobra.Command{
		Use:   "sql",
		Short: "Print the schema as plain SQL, for other migration tools",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := migrations.SQL()
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}

func migrateGrants() *cobra.Command {
	var fenceOnly bool
	cmd := &cobra.Command{
		Use:   "grants ROLE",
		Short: "Print the least privileges of a program's role, as SQL",
		Long: `Print, as SQL, the least privileges in the schema gatepost of a role whose
program uses pglock and idem; or, with --fence-only, of one that only writes
under leases of others, with sequencers that it was handed: it can neither read
a lease nor take, extend or release one. Run it as the schema's owner, and again
after each update.`,
		Example: `  gatepost migrate grants app | psql
  gatepost migrate grants worker --fence-only | psql`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			grants := migrations.Grants
			if fenceOnly {
				grants = migrations.FenceOnlyGrants
			}
			text, err := grants(args[0])
			if err != nil {
				return cli.UsageError{Err: err}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&fenceOnly, "fence-only", false, "for a role that only fences, with sequencers that it was handed")
	return cmd
}

// withStatus runs fn on the database and says how many migrations it changed.
func withStatus(cmd *cobra.Command, conn *connection, fn func(*pgxpool.Pool) error) error {
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
		return err
	}
	after, err := migrations.Status(cmd.Context(), pool)
	if err != nil {
		return err
	}
	applied := len(after) - countPending(after)
	change := applied - (len(before) - countPending(before))
	fmt.Fprintf(cmd.OutOrStdout(), "%d of %d migrations are applied (%+d)\n", applied, len(after), change)
	return nil
}

func countPending(all []migrations.MigrationStatus) (n int) {
	for _, m := range all {
		if !m.Applied {
			n++
		}
	}
	return n
}

func printStatus(w io.Writer, all []migrations.MigrationStatus, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tNAME\tAPPLIED")
	for _, m := range all {
		applied := "no"
		if m.Applied {
			applied = m.AppliedAt.Local().Format(time.DateTime)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, m.Name, applied)
	}
	return table.Flush()
}
