// Command gatepost is the operator's command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Execute(ctx, rootCommand(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// connection is how the commands reach the database.
type connection struct{ url string }

func (c connection) open(ctx context.Context) (*pgxpool.Pool, error) {
	url := c.url
	if url == "" {
		url = os.Getenv("DATABASE_URL")
	}
	return cli.Connect(ctx, url)
}

func rootCommand() *cobra.Command {
	var conn connection
	root := &cobra.Command{
		Use:   "gatepost",
		Short: "Leases, fencing tokens and idempotency keys in your PostgreSQL",
		Long: `Leases, fencing tokens and idempotency keys in your PostgreSQL.

The database is that of --database-url, else of DATABASE_URL, else of the PG*
variables that psql uses.

Exit codes: 0 done, 1 error, 2 usage, 75 the lease is held by another, 76 the
lease was lost while the command ran.`,
	}
	root.PersistentFlags().StringVar(&conn.url, "database-url", "", "the database; default $DATABASE_URL, else the PG* variables")
	root.AddCommand(migrateCommand(&conn))
	return root
}
