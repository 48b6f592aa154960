package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
)

func watchCommand(conn *connection) *cobra.Command {
	var opts pglock.ListOptions
	w := watch{interval: time.Second}
	cmd := &cobra.Command{
		Use:     "watch [NAME]",
		GroupID: groupLeases,
		Short:   "Watch the leases, or one of them, as they change",
		Long: `Watch what ls shows, or with a NAME what show shows, until Ctrl-C.

On a terminal it redraws in place. Elsewhere, and with --json, it prints a line
for each change: acquired, released, expired. It looks once an interval: what
came and went in between shows as one change. When the database can't be
reached it says so, and looks on.

Exit codes: 0 after Ctrl-C or SIGTERM, 1 when the first look fails.`,
		Example: `  gatepost watch
  gatepost watch reports/daily --interval 5s
  gatepost watch --json | jq -r 'select(.event == "expired") | .name'`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case w.interval < 100*time.Millisecond:
				return cli.UsageError{Err: fmt.Errorf("--interval is %s; it must be at least 100ms", w.interval)}
			case len(args) > 0 && (opts.Free || opts.Prefix != ""):
				return cli.Misuse(cmd, "--all and --prefix are for all leases, not for one NAME")
			}
			w.screen, w.notes = cli.ScreenOf(cmd.OutOrStdout()), cmd.ErrOrStderr()
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				return w.run(ctx, w.sightOf(db, args, opts))
			})
		},
	}
	cmd.Flags().DurationVar(&w.interval, "interval", w.interval, "time between looks, 100ms or more")
	cmd.Flags().BoolVarP(&opts.Free, "all", "a", false, "also names that are free, or whose lease expired")
	cmd.Flags().StringVar(&opts.Prefix, "prefix", "", "only names that begin with this")
	jsonFlag(cmd, &w.json)
	return cmd
}
