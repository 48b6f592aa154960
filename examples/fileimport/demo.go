package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// demoOptions are the flags of "fileimport demo".
type demoOptions struct {
	url     string
	ttl     time.Duration
	records int64
}

func demoCommand() *cobra.Command {
	var opts demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay the incident, three ways",
		Long: `Replay the incident, three ways: an importer holds a lease, is stopped for longer
than the lease lasts, and wakes up when a second one has begun on the same file.

Both importers are real processes, and the stop is a real one (SIGSTOP). It all
happens in a scratch schema, gatepost_demo_..., that is dropped at the end. The
demo fails when an act does not come out as it says.`,
		Example: `  fileimport demo
  fileimport demo --database-url postgres://localhost/shop --ttl 5s`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("demo takes no argument, but got %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.validate(); err != nil {
				return usageError(err)
			}
			return runDemo(cmd.Context(), cmd.OutOrStdout(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.url, "database-url", "", "the database; default $DATABASE_URL, else a temporary PostgreSQL")
	flags.DurationVar(&opts.ttl, "ttl", 2*time.Second, "how long a lease lasts, 300ms to 5m; the demo waits for its end twice")
	flags.Int64Var(&opts.records, "records", 12000, "records in the file, 24 to 100000")
	return cmd
}

func (o demoOptions) validate() error {
	switch {
	case o.ttl < 300*time.Millisecond || o.ttl > 5*time.Minute:
		return fmt.Errorf("--ttl %s can't be used; from 300ms to 5m", o.ttl)
	case o.records < 24 || o.records > 100_000:
		return fmt.Errorf("--records %d can't be used; from 24 to 100000", o.records)
	}
	return nil
}

// batch is how many records one transaction takes. The first importer is stopped
// after one.
func (o demoOptions) batch() int64 { return o.records / 24 }

// runDemo plays the demo until it is over, somebody interrupts it, or nobody
// reads it any more. It cleans up in each case.
func runDemo(ctx context.Context, out io.Writer, opts demoOptions) error {
	if !canStop {
		return fmt.Errorf("the demo stops a real process by SIGSTOP, which %s does not have; run it on Linux, macOS or BSD, or in WSL or a container", runtime.GOOS)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Without this a reader that goes away (demo | head) kills the demo before it
	// has dropped its schema. With it the write fails, and that ends the demo.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out = &cancellingWriter{w: out, cancel: cancel}

	if opts.url == "" && os.Getenv("DATABASE_URL") == "" {
		fmt.Fprintln(out, "No --database-url: starting a temporary PostgreSQL, gone at the end.")
	}
	pool, done, err := openDatabase(ctx, opts.url, io.Discard)
	if err != nil {
		return err
	}
	defer done()
	return playIn(ctx, pool, out, opts)
}

func playIn(ctx context.Context, pool *pgxpool.Pool, out io.Writer, opts demoOptions) error {
	s, err := createScratch(ctx, pool)
	if err != nil {
		return err
	}
	d := &demo{demoOptions: opts, scratch: s, pool: pool, out: out}
	err = d.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // whatever it looked like where it was noticed
	}
	return errors.Join(err, s.drop(ctx, pool))
}

// cancellingWriter ends the demo when nobody reads it any more.
type cancellingWriter struct {
	w      io.Writer
	cancel context.CancelCauseFunc
}

func (w *cancellingWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.cancel(err)
	}
	return n, err
}
