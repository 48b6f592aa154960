package main

import (
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
)

func keysCommand(conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		GroupID: groupKeys,
		Short:   "Idempotency keys: list them, show one, forget one",
		Long: `Idempotency keys: which operation ran under which key, and what it answered.

A key is named by three words: the operation, the scope (whose key it is: a
tenant, an account), and the key that the caller sent.`,
		Args: cli.Subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keysLsCommand(conn), keysShowCommand(conn), keysForgetCommand(conn))
	return cmd
}

// keyOf makes a key of the arguments OPERATION SCOPE KEY.
func keyOf(args []string) idem.Key {
	return idem.Key{Operation: args[0], Scope: idem.Scope(args[1]), Key: args[2]}
}

// mostShown is how much of a key is shown unless it is asked for in full: a key can be
// what keeps a stranger from reading the reply.
const mostShown = 8

// keyStart is the beginning of a key: never more than half of it.
func keyStart(key string) string { return key[:min(mostShown, len(key)/2)] + "…" }

func keyText(key string, full bool) string {
	if full {
		return cli.Printable(key)
	}
	return cli.Printable(keyStart(key))
}
