package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

// keyList is what keys ls lists, and how.
type keyList struct {
	filter       operator.KeyFilter
	scope, state string
	limit        int
	full, json   bool
}

func keysLsCommand(conn *connection) *cobra.Command {
	var l keyList
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List idempotency keys, and what has become of them",
		Long: `List idempotency keys, in the order of operation, scope and key.

  OPERATION  what is to happen once
  SCOPE      whose key it is
  KEY        its beginning; all of it with --full
  STATE      running    a claim with a lease that its process renews
             in doubt   the lease lapsed: nobody knows whether it happened
             done       the reply is stored, and replayed to whoever asks again
             tombstone  done, and the reply was too large to keep
             released   given back: the next call with the same request runs
  ATTEMPT    how often it was claimed
  AGE        since it was created
  EXPIRES    when the record ends; one that expired counts as absent, and
             gatepost gc removes it

A call of transaction mode shows when it has committed, and not before.
--operation and --scope are searched in an index, and cost the same on a table
of millions. A state has no index: a rare one is searched for in the whole table,
about a second for some millions of keys.`,
		Example: `  gatepost keys ls --operation payments.charge
  gatepost keys ls --state in-doubt
  gatepost keys ls --scope acme --full --limit 0 --json | jq -r .[].key`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.validate(); err != nil {
				return cli.UsageError{Err: err}
			}
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				return l.print(ctx, cmd, db)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Operation, "operation", "", "only keys of this operation")
	flags.StringVar(&l.scope, "scope", "", "only keys of this scope")
	flags.StringVar(&l.state, "state", "", "only keys in this state: running, in-doubt, done, tombstone or released")
	flags.IntVar(&l.limit, "limit", 100, "at most so many; 0 for all")
	flags.BoolVar(&l.full, "full", false, "keys in full: for your own eyes, not for a log")
	jsonFlag(cmd, &l.json)
	return cmd
}

func (l *keyList) validate() error {
	l.filter.Scope = idem.Scope(l.scope)
	l.filter.State = operator.KeyState(strings.ReplaceAll(l.state, "-", " "))
	switch {
	case l.limit < 0:
		return fmt.Errorf("--limit is %d; it must be 0, for all, or more", l.limit)
	case l.state != "" && !slices.Contains(operator.KeyStates, l.filter.State):
		return fmt.Errorf("--state %s is not known; use running, in-doubt, done, tombstone or released", l.state)
	}
	return nil
}

// print lists the keys as they are read, so that a list of millions needs no memory.
func (l *keyList) print(ctx context.Context, cmd *cobra.Command, db database) error {
	var out keyPrinter = &keyTablePrinter{screen: cli.ScreenOf(cmd.OutOrStdout()), full: l.full}
	if l.json {
		out = &keyJSONPrinter{w: cmd.OutOrStdout(), full: l.full}
	}
	n := 0
	for key, err := range operator.Keys(ctx, db.pool, l.filter) {
		if err != nil {
			return err
		}
		if l.limit > 0 && n == l.limit {
			fmt.Fprintf(cmd.ErrOrStderr(), "There are more than these %d: --limit, --operation, --scope and --state help.\n", n)
			break
		}
		if err := out.print(key); err != nil {
			return err
		}
		n++
	}
	if n == 0 && !l.json {
		fmt.Fprintln(cmd.ErrOrStderr(), "There are no such keys. A call in an open transaction shows when it commits.")
		return nil
	}
	return out.end()
}
