package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
)

// Middleware runs a handler once an Idempotency-Key, in a transaction that the
// handler gets by idem.Tx. It is safe for concurrent use.
type Middleware struct {
	store *idem.Store
	cfg   Config
}

// New makes a Middleware. It validates and starts nothing.
//
// Errors: ErrInvalidConfig.
func New(store *idem.Store, cfg Config) (*Middleware, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store is nil", ErrInvalidConfig)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Middleware{store: store, cfg: cfg}, nil
}

// errNotStored rolls back a reply that reaches the client and is not stored.
var errNotStored = errors.New("idemhttp: a reply of this status is not stored")

// errSingleRun is of a transaction that would have to be tried again.
var errSingleRun = errors.New("idemhttp: the transaction met another one, and the handler can't be run again")

var (
	errBodyTooLarge   = errors.New("idemhttp: the body is over the limit")
	errBodyUnreadable = errors.New("idemhttp: the body can't be read")
	errBodyConsumed   = errors.New("idemhttp: the body was read before the middleware: it must come first")
)

// Handler protects next. See the package's documentation for what it answers.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return m.protect(next, func(w http.ResponseWriter, r *http.Request, req Request) { m.once(w, r, req, next) })
}

// protect passes what isn't protected to next, and the rest to run.
func (m *Middleware) protect(next http.Handler, run func(http.ResponseWriter, *http.Request, Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(m.cfg.Methods, r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		key, err := m.keyOf(r)
		if err == nil && key == "" {
			next.ServeHTTP(w, r) // with its body unread
			return
		}
		var req Request
		if err == nil {
			req, err = m.read(w, r, key)
		}
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		run(w, r, req)
	})
}

// readBody reads to the end, also the trailers.
func (m *Middleware) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > m.cfg.MaxRequest {
		return nil, errBodyTooLarge
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, m.cfg.MaxRequest))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok { // this one's, or an outer one's
		return nil, errBodyTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBodyUnreadable, err)
	}
	parsed := r.PostForm != nil || r.MultipartForm != nil
	if len(body) == 0 && (r.ContentLength > 0 || r.ContentLength < 0 && parsed) {
		return nil, errBodyConsumed // all such requests would look the same
	}
	return body, nil
}

// once runs next under the key, or answers with what an earlier request got.
func (m *Middleware) once(w http.ResponseWriter, r *http.Request, req Request, next http.Handler) {
	var rec *recorder
	result, err := m.store.Do(r.Context(), req.Key, req.Fingerprint, nil, func(ctx context.Context, _ pgx.Tx) (idem.Reply, error) {
		if rec != nil && m.cfg.SingleRun {
			return idem.Reply{}, errSingleRun
		}
		rec = newRecorder(w) // another one when the transaction is tried again
		next.ServeHTTP(rec, again(ctx, r, req.Body))
		return m.outcome(ctx, rec)
	})
	switch {
	case errors.Is(err, errNotStored) && !passes(err):
		rec.send()
	case err != nil:
		m.refuse(w, r, err)
	case result.Replayed:
		WriteResult(w, result)
	default:
		rec.send()
	}
}

// again is the request as it came. What a handler did to an earlier copy is forgotten.
func again(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return r
}

// outcome says what becomes of the transaction.
func (m *Middleware) outcome(ctx context.Context, rec *recorder) (idem.Reply, error) {
	rec.WriteHeader(http.StatusOK) // of a handler that wrote nothing
	reply := idem.Reply{
		Status: rec.status, Header: kept(m.cfg.StoreHeaders, rec.before, rec.sent), Body: rec.body.Bytes(),
	}
	switch {
	case ctx.Err() != nil: // the client is gone
		return idem.Reply{}, ctx.Err()
	case rec.passing != nil:
		return idem.Reply{}, rec.passing
	case !stored(rec.status):
		return idem.Reply{}, errNotStored
	case rec.status >= http.StatusBadRequest && rec.keepWrites:
		return idem.Reply{}, idem.FinalKeep(reply)
	case rec.status >= http.StatusBadRequest:
		return idem.Reply{}, idem.Final(reply)
	default:
		return reply, nil
	}
}

// stored says whether a reply is the request's outcome, and not that of a moment.
func stored(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return 200 <= status && status < 500
	}
}

// refuse answers with an error, and tells the operator what the client isn't told.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	switch {
	case r.Context().Err() != nil: // nobody reads the answer
	case p.status == http.StatusServiceUnavailable, errors.Is(err, idem.ErrFenced):
		m.cfg.Logger.WarnContext(r.Context(), "idempotency unavailable", "operation", m.cfg.Operation(r), "err", err)
	case p.status >= http.StatusInternalServerError:
		m.cfg.Logger.ErrorContext(r.Context(), "idempotent request not run", "operation", m.cfg.Operation(r), "err", err)
	}
	p.write(w)
}
