// Command payments is an HTTP service that charges cards at a provider, each once,
// however often it is asked: the client retries, requests come twice at once, and the
// client, the service and the provider are killed at the worst moments.
//
//	order.go   an order is in this database only: idemhttp, one transaction
//	charge.go  a charge is somewhere else: a claim under a lease, and a look at the provider
//	retry.go   a client that follows the IETF's draft of Idempotency-Key
//	naive.go   the same without idempotency
//
// "payments demo" starts all of them as processes, kills them, and counts.
package main

import (
	"context"
	"log/slog"
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

// process is what the commands share: this process.
type process struct{ child bool }

func rootCommand() *cobra.Command {
	var p process
	demo := demoCommand()
	root := &cobra.Command{
		Use:   "payments",
		Short: "Charge a card once, however often it is asked for",
		Long: `Charge a card once, however often it is asked for.

Without a command it is the demo. By hand, each in a terminal of its own:

  payments provider
  payments serve
  payments client --key my-first
  payments client --key my-first      the same answer, and nothing more is charged

A service that is to be killed needs a database that stays (--database-url), and such
a provider a --ledger.`,
		Args: noArguments,
		RunE: demo.RunE, // with its defaults
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().BoolVar(&p.child, "child", false, "log JSON, and end when stdin does")
	_ = root.PersistentFlags().MarkHidden("child") // it is there
	root.AddCommand(demo, serveCommand(&p), providerCommand(&p), clientCommand(&p))
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return cli.UsageError{Err: err}
	}
	return nil
}

// log is where a process says what happens. Keys and cards are not logged.
func (p *process) log(cmd *cobra.Command) *slog.Logger {
	if p.child {
		go endWithParent(cmd.InOrStdin())
		return slog.New(slog.NewJSONHandler(cmd.OutOrStdout(), nil))
	}
	return slog.New(slog.NewTextHandler(cmd.OutOrStdout(), nil))
}
