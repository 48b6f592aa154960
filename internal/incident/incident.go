// Package incident replays the incident that Gatepost is about, with processes that are
// really stopped, three ways: a lease alone, a fenced transaction, a unique key. It is
// the demo of two programs.
package incident

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

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/tempdb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// Program is the program that has the demo.
type Program struct {
	Name string
	// URL is where the program's own --database-url is; nil gives the demo that flag.
	URL *string
	// Next says what to do after the demo.
	Next string
}

// Commands are "demo", and the hidden one that it starts its importers by: the program
// starts itself again.
func (p Program) Commands() []*cobra.Command {
	return []*cobra.Command{p.demoCommand(), p.importerCommand()}
}

// options are the flags of "demo".
type options struct {
	Program
	ttl     time.Duration
	records int64
}

func (p Program) demoCommand() *cobra.Command {
	opts := options{Program: p}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay the incident, three ways, with a process that is really stopped",
		Long: `Replay the incident, three ways: an importer holds a lease, is stopped for
longer than the lease lasts, and wakes up when a second one has begun on the
same file.

Both importers are real processes, and the stop is a real one (SIGSTOP). What is
counted is counted in the database. It takes about ten seconds, and fails when
an act does not come out as it says.

Without a database it starts a temporary PostgreSQL, gone at the end. In yours
it works in a scratch schema, gatepost_demo_..., that it drops at the end and on
Ctrl-C; Gatepost's own tables must be there (gatepost migrate up).`,
		Example: "  " + p.Name + " demo\n  " + p.Name + " demo --database-url postgres://localhost/shop --ttl 5s",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.UsageError{Err: fmt.Errorf("demo takes no argument, but got %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.validate(); err != nil {
				return cli.UsageError{Err: err}
			}
			return run(cmd.Context(), cli.ScreenOf(cmd.OutOrStdout()), opts)
		},
	}
	flags := cmd.Flags()
	if opts.URL == nil {
		opts.URL = flags.String("database-url", "", "the database; default $DATABASE_URL, else a temporary PostgreSQL")
	}
	flags.DurationVar(&opts.ttl, "ttl", 2*time.Second, "how long a lease lasts, 300ms to 5m; the demo waits for its end twice")
	flags.Int64Var(&opts.records, "records", 12000, "records in the file, 24 to 100000")
	return cmd
}

func (o options) validate() error {
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
func (o options) batch() int64 { return o.records / 24 }

// run plays the demo until it is over, somebody interrupts it, or nobody reads it
// any more. It cleans up in each case.
func run(ctx context.Context, out cli.Screen, opts options) error {
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
	out.W = &cancellingWriter{w: out.W, cancel: cancel}

	pool, done, err := open(ctx, out.W, *opts.URL)
	if err != nil {
		return err
	}
	defer done()
	return playIn(ctx, pool, out, opts)
}

// open connects to the database that was given, or starts a temporary one. The caller
// calls done.
func open(ctx context.Context, out io.Writer, url string) (pool *pgxpool.Pool, done func(), err error) {
	if source := cli.SourceOf(url); source.URL != "" {
		pool, err := source.Connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return pool, pool.Close, nil
	}
	fmt.Fprintln(out, "No --database-url: starting a temporary PostgreSQL, gone at the end.")
	db, err := tempdb.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return db.Pool, db.Close, nil
}

func playIn(ctx context.Context, pool *pgxpool.Pool, out cli.Screen, opts options) error {
	s, err := createScratch(ctx, pool)
	if err != nil {
		return err
	}
	d := &demo{options: opts, scratch: s, pool: pool, out: out}
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
