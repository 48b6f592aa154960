package pglock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of the schema.
const (
	maxNameBytes = 255
	maxDataBytes = 65536
	minTTL       = time.Millisecond
	maxTTL       = 168 * time.Hour
)

// Config configures a Client. The zero value works.
type Config struct {
	// Holder tells people who holds a lease: up to 255 bytes of UTF-8. It
	// identifies nothing; each acquisition has a nonce for that. Defaults to
	// host/pid/random.
	Holder string
	// TTL is how long a lease lasts unless renewed: 1 ms to 168 h. Defaults to 30 s.
	TTL time.Duration
	// RenewEvery is the time between heartbeats; a try may take half of it, and 5 s
	// at most, before it is repeated. Defaults to a third of the TTL; a lease with a
	// shorter TTL of its own is renewed at a third of that.
	RenewEvery time.Duration
	// SafetyMargin is how long before the database's expiry a holder stops
	// trusting its lease. Defaults to a tenth of the TTL.
	SafetyMargin time.Duration
	// FenceTimeout is the longest that a fenced transaction may take: it is ended
	// then, by the server or by closing its connection. So a holder keeps a takeover
	// out for at most TTL + FenceTimeout. One exception: before PostgreSQL 17 the
	// server has no limit for a whole transaction, and where the process is stopped
	// in the middle of one, the statement that runs then and the idle time after it
	// may take FenceTimeout each. Whole milliseconds. Defaults to 30 s.
	FenceTimeout time.Duration
	// PollInterval is how long a waiter can go without noticing a free lease when a
	// notification was lost or can't come. Defaults to 1 s.
	PollInterval time.Duration
	// DisableNotify makes waiters poll only, and saves the client's LISTEN
	// connection: for a pooler in transaction mode, through which notifications
	// don't come. Set Control to a direct pool instead where there is one.
	DisableNotify bool
	// Control is the pool for heartbeats and for finding out what became of lost
	// answers. Defaults to a private one of at most two connections, made from the
	// settings of the pool given to New, so that an exhausted pool doesn't cost a
	// lease. Set it where the application's pool goes through a pooler and this
	// one should not. The client doesn't close it.
	Control *pgxpool.Pool
	// Logger gets losses (error), trouble that is being retried (warn) and grants
	// (debug). Defaults to none.
	Logger *slog.Logger
	// Tracer is told of acquisitions, and of more if it implements more. Defaults
	// to none.
	Tracer Tracer
}

// NoWait, as AcquireOptions.Wait, makes Do return at once when the lease is held.
const NoWait time.Duration = -1

// AcquireOptions are the options of one acquisition. Nil means the client's.
type AcquireOptions struct {
	// TTL replaces the client's when not zero.
	TTL time.Duration
	// Wait is the longest that Acquire and Do wait for another holder, after which
	// they return its *HeldError. Zero is as long as their ctx lasts, NoWait is not
	// at all. TryAcquire never waits.
	Wait time.Duration
	// Data is stored with the lease for people and programs that look it up: up to
	// 64 KiB of JSON. Gone when the lease is released.
	Data json.RawMessage
}

// withDefaults validates cfg and fills in what is not set.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Holder == "" {
		cfg.Holder = defaultHolder()
	}
	cfg.TTL = orDefault(cfg.TTL, 30*time.Second)
	cfg.RenewEvery = orDefault(cfg.RenewEvery, cfg.TTL/3)
	cfg.SafetyMargin = orDefault(cfg.SafetyMargin, cfg.TTL/10)
	cfg.FenceTimeout = orDefault(cfg.FenceTimeout, 30*time.Second)
	cfg.PollInterval = orDefault(cfg.PollInterval, time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, cfg.validate()
}

func (cfg Config) validate() error {
	switch {
	case len(cfg.Holder) > maxNameBytes || !validText(cfg.Holder):
		return fmt.Errorf("%w: Holder must be at most %d bytes of UTF-8 without NUL", ErrInvalidConfig, maxNameBytes)
	case cfg.TTL < minTTL || cfg.TTL > maxTTL:
		return fmt.Errorf("%w: TTL is %s; it must be from %s to %s", ErrInvalidConfig, cfg.TTL, minTTL, maxTTL)
	case cfg.SafetyMargin < 0 || cfg.SafetyMargin >= cfg.TTL:
		return fmt.Errorf("%w: SafetyMargin is %s; it must be shorter than the TTL, %s", ErrInvalidConfig, cfg.SafetyMargin, cfg.TTL)
	case cfg.RenewEvery <= 0 || cfg.RenewEvery >= cfg.TTL-cfg.SafetyMargin:
		return fmt.Errorf("%w: RenewEvery is %s; it must be shorter than TTL - SafetyMargin, %s",
			ErrInvalidConfig, cfg.RenewEvery, cfg.TTL-cfg.SafetyMargin)
	case cfg.FenceTimeout < time.Millisecond || cfg.FenceTimeout > maxTTL:
		return fmt.Errorf("%w: FenceTimeout is %s; it must be from 1ms to %s", ErrInvalidConfig, cfg.FenceTimeout, maxTTL)
	case cfg.PollInterval <= 0:
		return fmt.Errorf("%w: PollInterval is %s; it must be positive", ErrInvalidConfig, cfg.PollInterval)
	}
	return nil
}

// timing is how one lease is kept: all derived from its TTL.
type timing struct{ ttl, renewEvery, margin time.Duration }

// tryTimeout bounds one renewal: half an interval, or a little more where the
// intervals are much shorter than the TTL needs.
func (t timing) tryTimeout() time.Duration {
	return max(t.renewEvery/2, min(t.ttl/6, 250*time.Millisecond))
}

// timing scales the client's settings down for a lease with a shorter TTL and
// keeps them for a longer one.
func (cfg Config) timing(ttl time.Duration) (timing, error) {
	if ttl == 0 {
		ttl = cfg.TTL
	}
	if ttl < minTTL || ttl > maxTTL {
		return timing{}, fmt.Errorf("%w: TTL is %s; it must be from %s to %s", ErrInvalidConfig, ttl, minTTL, maxTTL)
	}
	if ttl >= cfg.TTL {
		return timing{ttl: ttl, renewEvery: cfg.RenewEvery, margin: cfg.SafetyMargin}, nil
	}
	return timing{ttl: ttl, renewEvery: min(cfg.RenewEvery, ttl/3), margin: min(cfg.SafetyMargin, ttl/10)}, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func validText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func validateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > maxNameBytes:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrInvalidName, len(name), maxNameBytes)
	case !validText(name):
		return fmt.Errorf("%w: it must be UTF-8 without NUL", ErrInvalidName)
	}
	return nil
}

func validateData(data json.RawMessage) error {
	if len(data) > maxDataBytes {
		return fmt.Errorf("%w: Data has %d bytes, at most %d are allowed", ErrInvalidConfig, len(data), maxDataBytes)
	}
	if len(data) > 0 && (!json.Valid(data) || !utf8.Valid(data)) {
		return fmt.Errorf("%w: Data is not JSON in UTF-8", ErrInvalidConfig)
	}
	return nil
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || !validText(host) {
		host = "unknown"
	}
	host = host[:min(len(host), 200)]
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), newNonce()[:8])
}
