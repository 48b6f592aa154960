package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
)

func showCommand(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show NAME",
		GroupID: groupLeases,
		Short:   "Show all about one lease: holder, waiters, transactions behind its fence",
		Long: `Show all that the database knows of one name: who holds it or held it last, who
waits for it in which order, which open transactions lock its row (a fenced one
keeps the next holder out until it ends), and the data that its holder put
there.

It only reads. What it says is history when it arrives.

Exit codes: 1 when the name was never acquired.`,
		Example: `  gatepost show reports/daily
  gatepost show reports/daily --json | jq -r .holder`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				p, err := readPortrait(ctx, db, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
				}
				lines := p.lines(cli.ScreenOf(cmd.OutOrStdout()))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(lines, "\n"))
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// errNeverAcquired says that a name is not there.
var errNeverAcquired = errors.New("was never acquired, or was collected after a week of being free; the names that there are: gatepost ls --all")

// neverAcquired names those that there are and that may have been meant.
func neverAcquired(ctx context.Context, db database, name string) error {
	leases, _ := db.client.List(ctx, &pglock.ListOptions{Free: true}) // the name is what is wrong
	names := make([]string, len(leases))
	for i, l := range leases {
		names[i] = l.Name
	}
	if question := cli.DidYouMean(name, names); question != "" {
		return fmt.Errorf("%q %w; %s", name, errNeverAcquired, question)
	}
	return fmt.Errorf("%q %w", name, errNeverAcquired)
}

// portrait is all about one name.
type portrait struct {
	lease
	detail  operator.Detail
	waiting []operator.Waiter
	lockers []operator.Locker
}

func readPortrait(ctx context.Context, db database, name string) (portrait, error) {
	info, err := db.client.Get(ctx, name)
	if err != nil {
		return portrait{}, err
	}
	waiting, err := operator.Waiters(ctx, db.pool, name) // a standby, which may lag, is noticed by that
	if err != nil {
		return portrait{}, err
	}
	if info.Token == 0 {
		return portrait{}, neverAcquired(ctx, db, name)
	}
	p := portrait{lease: lease{*info, int64(len(waiting))}, waiting: waiting}
	if p.lockers, err = operator.Lockers(ctx, db.pool, name); err != nil {
		return portrait{}, err
	}
	p.detail, err = operator.DetailOf(ctx, db.pool, name)
	return p, err
}
