package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// What the service logs.
const (
	eventStored  = "stored the reply"
	eventFound   = "took over, found it charged"
	eventAbsent  = "took over, it was not charged"
	eventUnknown = "took over, nobody knows yet"
	eventFailed  = "no outcome"
)

// service is the API: orders in its database, and charges at the provider.
type service struct {
	tables
	pool     *pgxpool.Pool
	store    *idem.Store
	once     *idemhttp.Middleware
	provider *peer
	log      *slog.Logger
}

// serveOptions are the flags of "payments serve".
type serveOptions struct {
	url, schema, address, provider string
	lease                          time.Duration
	ignoresKeys, naive             bool
}

func serveCommand(p *process) *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "The service: POST /orders, POST /charges",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, done, err := openDatabase(cmd.Context(), opts.url, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer done()
			return serve(cmd.Context(), pool, opts, p.log(cmd))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.url, "database-url", "", "the database; default $DATABASE_URL, else a temporary PostgreSQL")
	flags.StringVar(&opts.schema, "schema", "payments", "the schema of the tables orders and charges, made if need be")
	flags.StringVar(&opts.address, "listen", "127.0.0.1:8080", "the address")
	flags.StringVar(&opts.provider, "provider", "http://127.0.0.1:8081", "the provider's URL")
	flags.DurationVar(&opts.lease, "lease", 10*time.Second, "how long a claim outlives a service that was killed")
	flags.BoolVar(&opts.ignoresKeys, "provider-ignores-keys", false, "the provider charges again for the same key")
	flags.BoolVar(&opts.naive, "naive", false, "without idempotency")
	return cmd
}

func serve(ctx context.Context, pool *pgxpool.Pool, opts serveOptions, log *slog.Logger) error {
	s, err := newService(pool, opts, log)
	if err != nil {
		return err
	}
	if err := s.create(ctx, pool); err != nil {
		return errors.Join(err, s.store.Close(context.WithoutCancel(ctx)))
	}
	h := s.routes()
	if opts.naive {
		h = s.naiveRoutes()
	}
	collecting, stop := context.WithCancel(ctx)
	var collector sync.WaitGroup
	collector.Go(func() { s.collect(collecting) })
	err = listen(ctx, opts.address, authenticated(h), log)
	stop()
	collector.Wait()
	return errors.Join(err, s.store.Close(context.WithoutCancel(ctx)))
}

func newService(pool *pgxpool.Pool, opts serveOptions, log *slog.Logger) (*service, error) {
	store, err := idem.New(pool, idem.Config{
		Lease:        opts.lease,
		LongestRetry: 24 * time.Hour, // what the API's documentation tells its clients
		Logger:       log,
	})
	if err != nil {
		return nil, err
	}
	once, err := once(store)
	provider := &peer{
		url: opts.provider, http: &http.Client{Timeout: chargeTimeout}, honoursKeys: !opts.ignoresKeys,
	}
	return &service{tables: tablesIn(opts.schema), pool: pool, store: store, once: once, provider: provider, log: log}, err
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.once.Handler(http.HandlerFunc(s.placeOrder)))
	mux.HandleFunc("POST /charges", s.handleCharge)
	return mux
}

// collect removes records that have expired, now and then. Each instance may do it.
func (s *service) collect(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := s.store.GC(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "collect expired keys", "err", err)
		}
		select {
		case <-time.After(5 * time.Minute):
		case <-ctx.Done():
		}
	}
}
