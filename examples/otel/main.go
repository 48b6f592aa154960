// Command otel shows pglock's traces as OpenTelemetry metrics: how long leases are
// asked for, waited for and held, renewals, losses, and the writes that a fence refused.
//
//	cd examples/otel && go run .
//
// metrics.go is the part to take along. Here the metrics are printed once, at the end;
// a service has an exporter of go.opentelemetry.io/otel/exporters/otlp in its place, and
// its own MeterProvider.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays on a temporary PostgreSQL and prints the metrics.
func run(ctx context.Context, w io.Writer) (err error) {
	server, err := pgtemp.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	pool, err := pgxpool.New(ctx, server.URL(""))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}

	exporter, err := stdoutmetric.New(stdoutmetric.WithEncoder(lines{w}))
	if err != nil {
		return err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(exporter)))
	m, err := newMetrics(provider)
	if err != nil {
		return err
	}
	err = play(ctx, pool, m)
	return errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) // prints
}

// play is what an importer goes through: it works, another one has to wait, and then it
// is paused for so long that the other one takes over.
func play(ctx context.Context, pool *pgxpool.Pool, tracer pglock.Tracer) error {
	first, err1 := pglock.New(pool, pglock.Config{Holder: "first", Tracer: tracer})
	second, err2 := pglock.New(pool, pglock.Config{Holder: "second", Tracer: tracer})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err := first.Do(ctx, "import", nil, func(ctx context.Context, lease *pglock.Lease) error {
		_, err := second.Acquire(ctx, "import", &pglock.AcquireOptions{Wait: 200 * time.Millisecond})
		if !errors.Is(err, pglock.ErrHeld) {
			return fmt.Errorf("the second importer was not kept out: %w", err)
		}
		return errors.Join(lease.Renew(ctx), lease.InTx(ctx, write)) // heartbeats renew, too
	})
	if err == nil {
		err = pause(ctx, pool, first, second)
	}
	ctx = context.WithoutCancel(ctx) // what isn't released lapses, but later
	return errors.Join(err, first.Close(ctx), second.Close(ctx))
}

// pause is the incident: the holder is paused, and wakes up when another one has its lease.
func pause(ctx context.Context, pool *pgxpool.Pool, first, second *pglock.Client) error {
	paused, err := first.Acquire(ctx, "import", nil)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `UPDATE gatepost.leases SET renewed_at = clock_timestamp() - interval '2 s',
		expires_at = clock_timestamp() - interval '1 s' WHERE name = 'import'`) // as the database sees a pause
	if err != nil {
		return err
	}
	return second.Do(ctx, "import", nil, func(ctx context.Context, lease *pglock.Lease) error {
		if err := paused.InTx(ctx, write); !errors.Is(err, pglock.ErrFenced) {
			return fmt.Errorf("the first importer still writes: %w", err)
		}
		return lease.InTx(ctx, write)
	})
}

// write is the work; what it writes doesn't matter here.
func write(pgx.Tx) error { return nil }
