package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

func guardCommand(conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Tables that demand a fence: put guards on, take them off, list them",
		Long: `Tables that demand a fence. A guarded table refuses each write, from any
program, whose transaction doesn't present the current fencing token of its
lease: an import by hand, a forgotten script, a holder that lost its lease.
It stops mistakes, not the table's owner.`,
		Args: cli.Subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(guardAddCommand(conn), guardRemoveCommand(conn), guardLsCommand(conn))
	return cmd
}

func guardAddCommand(conn *connection) *cobra.Command {
	var opts pglock.GuardOptions
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "add TABLE...",
		Short: "Put a guard on tables, with their partitions and children",
		Long: `Put a guard on tables: by one lease for the whole table, or by a column in which
each row names its lease. Their partitions and children are guarded with them,
and rows of partitions that are attached later. Add the guard again after one was
attached: until then a TRUNCATE that names it passes.

All tables, or none. It needs their owner, and keeps writers out for a moment;
where that takes longer than --wait, because a transaction is open that wrote to
one, nothing is changed. With another lease it replaces the guard.

Programs write in fenced transactions of pglock, or begin a transaction with
SELECT gatepost.fence('SEQUENCER'), which gatepost run puts into its command's
environment as GATEPOST_SEQUENCER.`,
		Example: `  gatepost guard add accounts --lease accounts/close-month
  gatepost guard add invoices invoice_lines --lease-column lease`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (opts.Lease == "") == (opts.LeaseColumn == "") {
				return cli.UsageError{Err: errors.New("give one of --lease and --lease-column")}
			}
			return conn.eachTable(cmd, args, wait, func(ctx context.Context, tx pgx.Tx, table pgx.Identifier) (string, error) {
				return "is guarded by " + guardedBy(opts.Lease, opts.LeaseColumn), pglock.GuardTable(ctx, tx, table, opts)
			})
		},
	}
	cmd.Flags().StringVar(&opts.Lease, "lease", "", "the name of the one lease for the whole table")
	cmd.Flags().StringVar(&opts.LeaseColumn, "lease-column", "", "the column in which each row names its lease")
	lockWaitFlag(cmd, &wait)
	return cmd
}

func guardRemoveCommand(conn *connection) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "remove TABLE...",
		Short: "Take the guard off tables",
		Long: `Take the guard off tables, their partitions and their children: all tables, or
none. It needs their owner, and waits, --wait at most, for all who use them.`,
		Example: `  gatepost guard remove accounts`,
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return conn.eachTable(cmd, args, wait, func(ctx context.Context, tx pgx.Tx, table pgx.Identifier) (string, error) {
				removed, err := pglock.UnguardTable(ctx, tx, table)
				if removed {
					return "is not guarded any more", err
				}
				return "was not guarded", err
			})
		},
	}
	lockWaitFlag(cmd, &wait)
	return cmd
}

func lockWaitFlag(cmd *cobra.Command, wait *time.Duration) {
	cmd.Flags().DurationVar(wait, "wait", 5*time.Second, "how long to wait for transactions that use a table; others queue behind")
}

// tableChange changes one table, and tells what is true of it after the commit.
type tableChange func(ctx context.Context, tx pgx.Tx, table pgx.Identifier) (outcome string, err error)

// eachTable changes tables in one transaction, with a limit on lock waits.
func (c connection) eachTable(cmd *cobra.Command, names []string, wait time.Duration, change tableChange) error {
	if wait < time.Millisecond {
		return cli.UsageError{Err: fmt.Errorf("--wait is %s; it must be 1ms at least", wait)}
	}
	var lines []string
	err := c.with(cmd.Context(), func(ctx context.Context, db database) error {
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			if err := limitLockWaits(ctx, tx, wait); err != nil {
				return err
			}
			for _, name := range names {
				table, err := operator.ParseTable(ctx, tx, name)
				if err != nil {
					return err
				}
				outcome, err := change(ctx, tx, table)
				if err != nil {
					return guardError(table, err)
				}
				lines = append(lines, tableText(table)+" "+outcome)
			}
			return nil
		})
	})
	if err == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(lines, "\n"))
	}
	return err
}

func limitLockWaits(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, strconv.FormatInt(wait.Milliseconds(), 10))
	return err
}

func guardedBy(lease, column string) string {
	if column != "" {
		return "the lease in column " + cli.Printable(column)
	}
	return "lease " + cli.Printable(lease)
}

// guardError says in one line why a table can't be guarded so, and what to do.
func guardError(table pgx.Identifier, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || !errors.Is(err, pglock.ErrInvalidGuard):
		return err
	case pgErr.Code == "42P01": // undefined_table
		return noTable(table)
	case pgErr.Hint != "":
		return fmt.Errorf("%s: %s. %s", tableText(table), pgErr.Message, pgErr.Hint)
	default:
		return fmt.Errorf("%s: %s", tableText(table), pgErr.Message)
	}
}

// noTable says of a name that it is no table's.
func noTable(table pgx.Identifier) error {
	if len(table) == 1 {
		return fmt.Errorf("there is no such table in the schemas of search_path: %s; give its schema too, SCHEMA.TABLE", tableText(table))
	}
	return fmt.Errorf("there is no such table: %s", tableText(table))
}
