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
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
)

// Exit codes, the same as gatepost's.
const (
	exitError = 1
	exitUsage = 2
	exitHeld  = 75 // the lease is held by another
	exitLost  = 76 // the lease was lost while the import ran
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "fileimport",
		Short:         "Import a CSV file into PostgreSQL, every record once",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(importCommand(), demoCommand(), demoImporterCommand())

	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "fileimport:", explain(err))
	return exitCode(err)
}

// usageError is a command line that can't be used.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	switch _, usage := errors.AsType[usageError](err); {
	case usage:
		return exitUsage
	case errors.Is(err, pglock.ErrHeld):
		return exitHeld
	case errors.Is(err, pglock.ErrLost):
		return exitLost
	default:
		return exitError
	}
}
