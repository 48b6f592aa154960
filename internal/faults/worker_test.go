//go:build linux

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envWorker turns the test binary into a worker.
const envWorker = "GATEPOST_FAULTS_WORKER"

// role is what a worker is told at first.
type role struct {
	Number, Life int
	Seed         uint64
	URL, Proxy   string // the database, and where it is dialled
	Dir          string // of the histories and the handed-over sequencers
	Names        []string
	TTL          time.Duration
	FenceTimeout time.Duration
	Poll         time.Duration
}

// name is the worker's, and which life of it.
func (r role) name() string { return fmt.Sprintf("w%d.%d", r.Number, r.Life) }

// application is what pg_stat_activity calls it: the same in each life.
func (r role) application() string { return fmt.Sprintf("w%d", r.Number) }

// worker is the inside of a worker process.
type worker struct {
	role
	rec    *recorder
	pool   *pgxpool.Pool
	client *pglock.Client
	store  *idem.Store
	orders orders
}

// beAWorker is the main of a worker. It works until its input ends or says so.
func beAWorker(text string) (code int) {
	w := &worker{}
	if err := w.start(context.Background(), text); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go metronome(ctx, w.rec)
	go w.obey(ctx, os.Stdin, cancel)
	w.work(ctx)
	if err := w.finish(); err != nil {
		fmt.Fprintf(os.Stderr, "worker %s: %v\n", w.name(), err)
		return 1
	}
	return 0
}

func (w *worker) start(ctx context.Context, text string) (err error) {
	if err = json.Unmarshal([]byte(text), &w.role); err != nil {
		return err
	}
	if w.rec, err = newRecorder(w.Dir, w.name()); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 6
	cfg.ConnConfig.RuntimeParams["application_name"] = w.application()
	cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", w.Proxy)
	}
	if w.Number%2 == 0 { // one that sends statements with their text: the proxy can match them
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if w.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	w.client, err = pglock.New(w.pool, pglock.Config{
		Holder: w.name(), TTL: w.TTL, FenceTimeout: w.FenceTimeout, PollInterval: w.Poll, DisableNotify: w.Number%3 == 2,
	})
	if err != nil {
		return err
	}
	w.store, err = idem.New(w.pool, idem.Config{Lease: w.TTL})
	return err
}

// work runs everything a service might do at once.
func (w *worker) work(ctx context.Context) {
	var all sync.WaitGroup
	for i, job := range []func(context.Context, *rand.Rand){w.hold, w.hold, w.lead, w.courier, w.clerk, w.attempts, w.attempts} {
		random := rand.New(rand.NewPCG(w.Seed, uint64(w.Number*1000+w.Life*10+i)))
		all.Go(func() {
			for ctx.Err() == nil {
				job(ctx, random)
				pause(ctx, between(random, 0, w.TTL/20))
			}
		})
	}
	all.Wait()
}

// endWithin is the longest that a worker may take to end.
const endWithin = 30 * time.Second

// finish closes what the worker has, as a service that is told to stop.
func (w *worker) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	o := w.rec.call(closing, "")
	err := w.client.Close(ctx)
	w.rec.done(o, err)
	if err != nil {
		return fmt.Errorf("close the client: %w", err)
	}
	if err := w.store.Close(ctx); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	w.pool.Close()
	return nil
}

// between is a random duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// pick is one of several.
func pick[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }
