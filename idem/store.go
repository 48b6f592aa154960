package idem

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of a Config.
const (
	defaultRetention = 24 * time.Hour
	defaultLease     = time.Minute
	defaultMaxBody   = 1 << 20
	mostMaxBody      = 1 << 28 // a bytea of 1 GB is the server's limit, twice that in transit as text
)

// Config configures a Store. The zero value works.
type Config struct {
	// Retention is how long a reply is kept, from when it was stored. A retry that
	// comes later runs again. Defaults to 24 h, or to LongestRetry where that is
	// longer.
	Retention time.Duration
	// LongestRetry is the longest time after the first attempt at which a client,
	// or a broker's redelivery, may still try again: Retention must not be shorter.
	// Zero means that you don't know, and Retention is taken for it.
	LongestRetry time.Duration
	// Lease is how long a claim of Begin lasts unless its heartbeat renews it, each
	// third of it. Defaults to 60 s.
	Lease time.Duration
	// MaxBody is the largest body that is stored, in bytes. A larger one reaches the
	// first caller and leaves a tombstone: later callers learn that it happened.
	// Defaults to 1 MiB, at most 256 MiB.
	MaxBody int
	// Logger gets leases that were lost (error), trouble that is retried (warn) and
	// what GC removed (debug). Keys and bodies are never logged. Defaults to none.
	Logger *slog.Logger
}

// Store runs operations once a key. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	cfg      Config
	beat     *heartbeat
	forecast forecast
}

// New makes a Store on a pool of a database that gatepost migrate up was run on. It
// validates and starts nothing.
//
// Errors: ErrInvalidConfig.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", ErrInvalidConfig)
	}
	if cfg.Retention == 0 {
		cfg.Retention = max(defaultRetention, cfg.LongestRetry)
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{pool: pool, cfg: cfg}
	s.beat = newHeartbeat(s)
	return s, nil
}

// MaxBody is the largest body that is stored, in bytes: Config's, or its default.
func (s *Store) MaxBody() int { return s.cfg.MaxBody }

func (cfg Config) validate() error {
	switch {
	case cfg.Retention < time.Second:
		return fmt.Errorf("%w: Retention is %s; it must be at least 1s", ErrInvalidConfig, cfg.Retention)
	case cfg.LongestRetry < 0 || cfg.Retention < cfg.LongestRetry:
		return fmt.Errorf("%w: Retention is %s, shorter than LongestRetry, %s: a late retry would run again", ErrInvalidConfig, cfg.Retention, cfg.LongestRetry)
	case cfg.Lease < 100*time.Millisecond:
		return fmt.Errorf("%w: Lease is %s; it must be at least 100ms", ErrInvalidConfig, cfg.Lease)
	case cfg.MaxBody < 0 || cfg.MaxBody > mostMaxBody:
		return fmt.Errorf("%w: MaxBody is %d; it must be from 0, for the default, to %d", ErrInvalidConfig, cfg.MaxBody, mostMaxBody)
	}
	return nil
}
