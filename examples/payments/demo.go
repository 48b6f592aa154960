package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// demoOptions are the flags of "payments demo".
type demoOptions struct {
	url    string
	lease  time.Duration
	copies int
	naive  bool
}

func demoCommand() *cobra.Command {
	var opts demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Charge cards under retries, duplicates and kills, and count",
		Long: `Charge cards under retries, duplicates and kills, and count.

The provider, the service and the clients are processes of their own, and what is
killed is killed by SIGKILL. The service's tables are in a scratch schema,
gatepost_payments_..., that is dropped at the end. The exit code is 1 when a purchase
was not charged exactly once.`,
		Example: `  payments demo
  payments demo --naive
  payments demo --database-url postgres://localhost/shop`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.lease < 300*time.Millisecond || opts.lease > time.Minute || opts.copies < 2 || opts.copies > 200 {
				return cli.UsageError{Err: errors.New("--lease must be 300ms to 1m, and --copies 2 to 200")}
			}
			return runDemo(cmd.Context(), cmd.OutOrStdout(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.url, "database-url", "", "the database; default $DATABASE_URL, else a temporary PostgreSQL")
	flags.DurationVar(&opts.lease, "lease", 800*time.Millisecond, "how long a claim outlives a service that was killed, 300ms to 1m")
	flags.IntVar(&opts.copies, "copies", 20, "how many equal requests are sent at once, 2 to 200")
	flags.BoolVar(&opts.naive, "naive", false, "the same without idempotency")
	return cmd
}

// demo is one run: the processes, and what they did.
type demo struct {
	demoOptions
	pool             *pgxpool.Pool
	tables           tables
	account          string
	ledger           string // the provider's file
	provider, server *child
	providerAt       string // URLs, the same after a restart
	serverAt         string
	client           *child // the last one
	*timeline
}

// runDemo plays the demo until it is over, somebody interrupts it, or nobody reads it
// any more. It cleans up in each case.
func runDemo(ctx context.Context, out io.Writer, opts demoOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Without this a reader that goes away (demo | head) kills the demo before it has
	// dropped its schema. With it the write fails, and that ends the demo.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out = &cancellingWriter{w: out, cancel: cancel}

	suffix := strings.ToLower(rand.Text()[:8])
	d := &demo{demoOptions: opts, tables: tablesIn("gatepost_payments_" + suffix), account: "demo-" + suffix, timeline: newTimeline(out)}
	pool, done, err := openDatabase(ctx, opts.url, out)
	if err != nil {
		return err
	}
	defer done()
	d.pool = pool
	err = d.playAndCleanUp(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause // whatever it looked like where it was noticed
	}
	return err
}

// playAndCleanUp leaves no process, no file and no table.
func (d *demo) playAndCleanUp(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "gatepost-payments-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d.ledger = filepath.Join(dir, "ledger.jsonl")
	if err := d.tables.create(ctx, d.pool); err != nil {
		return err
	}
	err = d.play(ctx)
	for _, c := range []*child{d.client, d.server, d.provider} {
		c.kill()
	}
	return errors.Join(err, d.tables.drop(ctx, d.pool, d.account))
}

// startProvider starts it, or starts it again where it was and with what it had booked.
func (d *demo) startProvider(ctx context.Context, args ...string) (err error) {
	args = append([]string{"provider", "--ledger", d.ledger, "--listen", address(d.providerAt)}, args...)
	if d.provider, err = startChild("provider", nil, args, d.told); err != nil {
		return err
	}
	listening, err := d.provider.await(ctx, eventListening)
	d.providerAt = listening.URL
	return err
}

// startServer starts the service, or starts it again where it was.
func (d *demo) startServer(ctx context.Context, args ...string) (err error) {
	args = append([]string{
		"serve", "--schema", d.tables.schema, "--lease", d.lease.String(),
		"--provider", d.providerAt, "--listen", address(d.serverAt), fmt.Sprintf("--naive=%t", d.naive),
	}, args...)
	// A command line can be read by everybody on the machine, an environment can't.
	env := []string{"DATABASE_URL=" + d.pool.Config().ConnString()}
	if d.server, err = startChild("server", env, args, d.told); err != nil {
		return err
	}
	listening, err := d.server.await(ctx, eventListening)
	d.serverAt = listening.URL
	return err
}

// address is where to listen: any port the first time.
func address(url string) string {
	if url == "" {
		return "127.0.0.1:0"
	}
	return strings.TrimPrefix(url, "http://")
}

// buy starts a client.
func (d *demo) buy(key string, args ...string) (err error) {
	args = append([]string{"client", "--server", d.serverAt, "--account", d.account, "--key", key}, args...)
	d.client, err = startChild("client", nil, args, d.told)
	return err
}

// buyToTheEnd starts a client and waits for what it comes to.
func (d *demo) buyToTheEnd(ctx context.Context, key string, args ...string) ([]event, error) {
	if err := d.buy(key, args...); err != nil {
		return nil, err
	}
	return d.client.untilEnd(ctx)
}

// kill kills one of the processes.
func (d *demo) kill(c *child) {
	d.note("SIGKILL to the " + c.name)
	c.kill()
}

// tellProvider has the provider's next charge wait, or lets it go on.
func (d *demo) tellProvider(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.providerAt+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// charges are all that the provider has booked.
func (d *demo) charges(ctx context.Context) (all []providerCharge, err error) {
	p := peer{url: d.providerAt, http: http.DefaultClient}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.providerAt+"/charges", nil)
	if err != nil {
		return nil, err
	}
	return all, p.do(r, http.StatusOK, &all)
}
