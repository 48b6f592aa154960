package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
		Args: cli.Subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migrateUp(conn), migrateDown(conn), migrateStatus(conn), migrateSQL())
	for _, sub := range cmd.Commands() {
		sub.Args = usage(cobra.NoArgs)
	}
	cmd.AddCommand(migrateGrants())
	return cmd
}

func migrateUp(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Long: `Apply the migrations that are missing, each in a transaction of its own. Any
number of processes may do so at the same moment, and programs may run
meanwhile. It needs the right to create the schema, or its owner. Afterwards,
grant again what programs need: gatepost migrate grants.`,
		Example: `  gatepost migrate up
  gatepost migrate up --database-url postgres://owner@db.example.com/app`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStatus(cmd, conn, asJSON, func(pool *pgxpool.Pool) error {
				return migrations.Up(cmd.Context(), pool)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func migrateDown(conn *connection) *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Drop Gatepost's tables and all that is in them",
		Long: `Undo all migrations: drop Gatepost's tables and all that is in them, object by
object. It refuses while a lease is held or a table is guarded, unless --force
is given. The schema and its version table stay.`,
		Example: `  gatepost migrate down`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStatus(cmd, conn, asJSON, func(pool *pgxpool.Pool) error {
				if err := notNewer(cmd.Context(), pool); err != nil {
					return err
				}
				if err := inUse(cmd, pool); err != nil && !force {
					return err
				}
				return migrations.Down(cmd.Context(), pool)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while leases are held, which their holders lose, and tables guarded")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// notNewer refuses a schema with parts that this program doesn't know how to drop.
func notNewer(ctx context.Context, pool *pgxpool.Pool) error {
	have, err := cli.SchemaVersion(ctx, pool)
	if err == nil && have > migrations.Latest() {
		err = &cli.SchemaError{Have: have, Need: migrations.Latest()}
	}
	return err
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
	var held int64
	var holder string
	err = pool.QueryRow(cmd.Context(), `SELECT count(*), coalesce(min(holder), '') FROM gatepost.leases
		WHERE nonce IS NOT NULL AND expires_at > clock_timestamp()`).Scan(&held, &holder)
	if err == nil && held > 0 {
		err = errors.New(heldText(held, cli.Printable(holder)))
	}
	return err
}

func heldText(n int64, holder string) string {
	if n == 1 {
		return fmt.Sprintf("a lease is held, by %s; stop its holder first, or use --force", holder)
	}
	return fmt.Sprintf("%s leases are held, one by %s; stop their holders first, or use --force", cli.Number(n), holder)
}

func migrateSQL() *cobra.Command {
	var functions bool
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the schema as plain SQL, for other migration tools",
		Long: `Print all migrations as plain SQL, for another migration tool or a review. It
needs no database. Don't mix the two ways: gatepost migrate up doesn't know
what another tool applied.

With --functions it prints what makes the functions of this version again, in
place, where gatepost doctor found one that was changed or dropped. Triggers and
privileges stay. It is for a database that is up to date, and needs its owner.`,
		Example: `  gatepost migrate sql > gatepost.sql
  gatepost migrate sql | psql --single-transaction
  gatepost migrate sql --functions | psql "$DATABASE_URL"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := migrations.SQL
			if functions {
				source = migrations.FunctionsSQL
			}
			text, err := source()
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&functions, "functions", false, "only the functions, made again in place")
	return cmd
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
