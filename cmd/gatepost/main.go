// Command gatepost is the operator's command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/job"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	job.Intercept()
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	code := cli.Execute(ctx, rootCommand(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// endingSignals end the program. An ignored SIGINT stays so: that is how a shell starts
// what it runs in the background, and how run's command is to find it.
func endingSignals() []os.Signal {
	if signal.Ignored(os.Interrupt) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM}
}

// connection is how the commands reach the database.
type connection struct{ url string }

// open is for commands that ask once: they prepare nothing, for poolers.
func (c connection) open(ctx context.Context) (*pgxpool.Pool, error) {
	source := cli.SourceOf(c.url)
	source.Unprepared = true
	return source.Connect(ctx)
}

// database is an open one, and a client for the leases in it.
type database struct {
	pool   *pgxpool.Pool
	client *pglock.Client
}

// with runs fn on the database.
func (c connection) with(ctx context.Context, fn func(context.Context, database) error) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it holds nothing
	return cli.WithSchema(ctx, pool, fn(ctx, database{pool, client}))
}

func rootCommand() *cobra.Command {
	var conn connection
	root := &cobra.Command{
		Use:     "gatepost",
		Version: thisBuild().Version,
		Short:   "Leases, fencing tokens and idempotency keys in your PostgreSQL",
		Long: `Leases, fencing tokens and idempotency keys in your PostgreSQL.

The database is that of --database-url, else of DATABASE_URL, else of the PG*
variables that psql uses.

Times are given with their unit, as in 500ms, 30s, 5m or 1h30m. JSON has tokens
as strings, moments in RFC 3339 and UTC, and lengths of time in milliseconds.

Exit codes: 0 done, 1 error, 2 usage, 75 the lease is held by another, 76 the
lease was lost while the command ran.`,
		Example: `  gatepost demo          what it is about, in ten seconds, without a database
  gatepost migrate up    its tables, into a database of yours
  gatepost watch         who holds what, as it changes`,
	}
	root.PersistentPreRunE = onlyText
	root.PersistentFlags().StringVar(&conn.url, "database-url", "", "the database, as postgres://role@host/database (default $DATABASE_URL, else the PG* variables)")
	root.AddCommand(lsCommand(&conn), showCommand(&conn), watchCommand(&conn), runCommand(&conn), releaseCommand(&conn))
	root.AddCommand(keysCommand(&conn), guardCommand(&conn), doctorCommand(&conn))
	root.AddCommand(gcCommand(&conn), benchCommand(&conn), migrateCommand(&conn), manCommand(), versionCommand())
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(demo(&conn).Commands()...)
	completionCommand(root)
	complete(root, &conn)
	group(root)
	return root
}

// onlyText refuses what no name in a database is. A command to run, and a directory, may be
// any bytes.
func onlyText(cmd *cobra.Command, args []string) (err error) {
	if cmd.Name() != "run" && cmd.Name() != "man" {
		for _, arg := range args {
			if !recordable(arg) {
				return cli.UsageError{Err: fmt.Errorf("%q is not text in UTF-8", arg)}
			}
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Name != "database-url" && !recordable(f.Value.String()) {
			err = cli.UsageError{Err: fmt.Errorf("--%s %q is not text in UTF-8", f.Name, f.Value.String())}
		}
	})
	return err
}

// usage makes a refused argument an error of usage.
func usage(args cobra.PositionalArgs) cobra.PositionalArgs { return cli.Usage(args) }

func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON: tokens as strings, times in RFC 3339")
}
