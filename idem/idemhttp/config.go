package idemhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/idem"
)

// ErrInvalidConfig says which setting of a Config can't be used.
var ErrInvalidConfig = errors.New("idemhttp: invalid configuration")

// KeyPolicy says what happens to a request without an Idempotency-Key.
type KeyPolicy int

// The policies. There is no default: whether a client may leave the key out is a
// promise of the API's.
const (
	Required KeyPolicy = iota + 1 // it is refused with 400
	Optional                      // it runs unprotected
)

// Config configures a Middleware. Keys and Scope must be set.
type Config struct {
	// Keys is Required or Optional.
	Keys KeyPolicy
	// Scope says whose key it is, from what authentication found out: a tenant, an
	// account, a user. A key finds only replies of its own scope. An error is a fault
	// of the service's, 500; who may not ask is refused before this middleware.
	Scope func(*http.Request) (idem.Scope, error)
	// Operation names what the request does; a key finds only replies of its own
	// operation. Defaults to the route pattern (http.Request.Pattern), and where
	// there is none, as when the middleware stands before the router, to the method:
	// then one key can't be used on two routes.
	Operation func(*http.Request) string
	// Methods are those that are protected. Others pass. Defaults to POST and PATCH;
	// PUT and DELETE may be added.
	Methods []string
	// StoreHeaders are headers of a reply that are stored beside Content-Type,
	// Content-Language, Content-Disposition, Content-Encoding, Location, Link, ETag
	// and Last-Modified. Credentials, cookies, CORS and what belongs to a connection
	// or a moment are refused.
	StoreHeaders []string
	// CanonicalJSON lets two bodies of a JSON media type be one request when they
	// differ in white space, in the order of members and in escapes. Changing it
	// makes requests differ from themselves: a retry over the change gets 422.
	CanonicalJSON bool
	// MaxRequest is the largest body of a request, in bytes. Defaults to 1 MiB.
	MaxRequest int64
	// Strict takes an Idempotency-Key only as the structured-field string that the
	// IETF's draft asks for, "abc" in double quotes, and not bare as well.
	Strict bool
	// SingleRun is for what stands behind the middleware and can't be run twice in one
	// request, such as a router of chi's with subrouters, or gin's Context.Next: they
	// keep where they are in the request's context. Where a transaction would be tried
	// again, the client gets 503 with Retry-After and does it.
	SingleRun bool
	// Logger gets what a client is told no more of than 500 (error) or 503 (warn).
	// Keys and bodies are never logged. Defaults to none.
	Logger *slog.Logger
}

const defaultMaxRequest = 1 << 20

// withDefaults is cfg complete, or an error.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Operation == nil {
		cfg.Operation = operation
	}
	if len(cfg.Methods) == 0 {
		cfg.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if cfg.MaxRequest == 0 {
		cfg.MaxRequest = defaultMaxRequest
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Keys != Required && cfg.Keys != Optional:
		return cfg, fmt.Errorf("%w: Keys must be Required or Optional", ErrInvalidConfig)
	case cfg.Scope == nil:
		return cfg, fmt.Errorf("%w: Scope is nil; where keys belong to nobody, return idem.Global", ErrInvalidConfig)
	case cfg.MaxRequest < 0:
		return cfg, fmt.Errorf("%w: MaxRequest is %d", ErrInvalidConfig, cfg.MaxRequest)
	}
	if err := validateMethods(cfg.Methods); err != nil {
		return cfg, err
	}
	return cfg, cfg.allowHeaders()
}

func operation(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	return r.Method
}

func validateMethods(methods []string) error {
	safe := []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}
	for _, method := range methods {
		if method == "" || method != strings.ToUpper(method) || slices.Contains(safe, method) {
			return fmt.Errorf("%w: Methods has %q; it is for methods that change something", ErrInvalidConfig, method)
		}
	}
	return nil
}

// allowHeaders makes StoreHeaders the whole list.
func (cfg *Config) allowHeaders() error {
	allowed := slices.Clone(storedHeaders)
	for _, name := range cfg.StoreHeaders {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if name == "" || !storable(canonical) {
			return fmt.Errorf("%w: StoreHeaders has %q, which must not be replayed", ErrInvalidConfig, name)
		}
		allowed = append(allowed, canonical)
	}
	cfg.StoreHeaders = allowed
	return nil
}
