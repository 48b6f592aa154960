// Command fileimport loads a CSV file into a PostgreSQL table, each record
// once, however often and from however many machines it is started.
//
// It runs under a lease, so that two starts don't do the same work twice, and
// under a unique key, so that nothing is wrong when they do: the lease is for
// efficiency, the key is for correctness. "fileimport demo" shows what happens
// with the lease alone.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Execute(ctx, rootCommand(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{Use: "fileimport", Short: "Import a CSV file into PostgreSQL, every record once"}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(importCommand())
	root.AddCommand(demoCommands()...)
	return root
}

// usageError marks a command line that can't be used.
func usageError(err error) error { return cli.UsageError{Err: err} }
