package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/spf13/cobra"
)

func doctorCommand(conn *connection) *cobra.Command {
	opts := doctor.Options{Timeout: 5 * time.Second, FenceTimeout: 30 * time.Second}
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what weakens Gatepost's promises here, each with its remedy",
		Long: `Look at the database for what weakens Gatepost's promises, and say what to do.

It finds a schema that is missing, old or was changed; a server that loses
commits in a crash or a failover; transactions, prepared ones too, that keep a
lease's next holder out; holes in the guards of tables; leases and idempotency
keys that were left behind; clocks that differ; tables that grow; a pooler in
between; and with --role what that role lacks, or has and needn't.

  WEAKENS  takes away from a promise: see to it
  NOTE     costs time or room, or wants a look
  UNSEEN   this role may not look there; the grant that would help is told
  FAILED   a check could not be made

Each comes with the remedy: SQL, or a command; with --json each line of it has a
kind, "sql", "shell" or "text", which is for people. doctor itself only reads, in one
READ ONLY transaction, and no nonce. Any role may run it; to a member of
pg_monitor that may SELECT from Gatepost's tables nothing is UNSEEN.

Exit codes: 0 when there are at most notes, 1 when something weakens a promise
or a check failed.`,
		Example: `  gatepost doctor
  gatepost doctor --role app
  gatepost doctor --json | jq -r '.checks[].findings[].remedy[].text'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Timeout < time.Millisecond || opts.FenceTimeout < time.Millisecond {
				return cli.UsageError{Err: fmt.Errorf("--timeout and --fence-timeout must be at least 1ms")}
			}
			if opts.FenceOnly && opts.Role == "" {
				return cli.UsageError{Err: fmt.Errorf("--fence-only says what the role is for: give --role too")}
			}
			report, err := examine(cmd, conn, opts)
			if err != nil {
				return err
			}
			if err := printReport(cmd, report, asJSON, all); err != nil {
				return err
			}
			if report.Count(doctor.Weakens)+report.Failed() > 0 {
				return cli.CodeError(cli.ExitError)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&opts.Role, "role", "", "the application's role: also look at its privileges")
	cmd.Flags().BoolVar(&opts.FenceOnly, "fence-only", false, "--role only fences, with sequencers that it was handed")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also list what is as it should be")
	cmd.Flags().DurationVar(&opts.Timeout, "timeout", opts.Timeout, "bounds each statement")
	cmd.Flags().DurationVar(&opts.FenceTimeout, "fence-timeout", opts.FenceTimeout, "the clients' FenceTimeout: how long a fenced transaction may be open")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: all checks, with what they look at")
	return cmd
}

func examine(cmd *cobra.Command, conn *connection, opts doctor.Options) (*doctor.Report, error) {
	pool, err := conn.open(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return doctor.Examine(cmd.Context(), pool.Config().ConnConfig, opts)
}

func printReport(cmd *cobra.Command, r *doctor.Report, asJSON, all bool) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(reportJSON(r))
	}
	screen := cli.ScreenOf(cmd.OutOrStdout())
	for _, line := range reportLines(screen, r, all) {
		if _, err := fmt.Fprintln(screen.W, line); err != nil {
			return err
		}
	}
	return nil
}
