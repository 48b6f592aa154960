package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
)

func lsCommand(conn *connection) *cobra.Command {
	var opts pglock.ListOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		GroupID: groupLeases,
		Short:   "List the leases: who holds what, and for how long",
		Long: `List the leases that are held, by name.

  NAME     what is leased
  HOLDER   who has it
  TOKEN    the fencing token: it rises with every acquisition of the name
  TERM     how often the name was acquired
  LEFT     when it expires unless renewed: its holder renews it all the time
  WAITERS  how many clients wait for it
  SINCE    when it was acquired; when it became free, of one that is

On a terminal, long names and holders are cut and the last columns left out
where they don't fit. Into a pipe, and as JSON, everything is printed.`,
		Example: `  gatepost ls --all --prefix reports/
  gatepost ls --json | jq -r '.[] | select(.left_ms < 5000) | .name'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				leases, err := readLeases(ctx, db, opts)
				if err != nil {
					return err
				}
				return printLeases(cmd, leases, asJSON, opts.Free)
			})
		},
	}
	cmd.Flags().BoolVarP(&opts.Free, "all", "a", false, "also names that are free, or whose lease expired")
	cmd.Flags().StringVar(&opts.Prefix, "prefix", "", "only names that begin with this")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printLeases(cmd *cobra.Command, leases []lease, asJSON, all bool) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(leases)
	}
	if len(leases) == 0 {
		// Not into the output, where a script would take it for a row.
		fmt.Fprintln(cmd.ErrOrStderr(), nothingHeld(all))
		return nil
	}
	return leaseTable(leases).Print(cli.ScreenOf(cmd.OutOrStdout()))
}

func nothingHeld(all bool) string {
	if all {
		return "There are no such names."
	}
	return "Nothing is held. Names that are free: gatepost ls --all"
}
