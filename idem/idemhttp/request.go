package idemhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gatepost/gatepost/idem"
)

// Request is what decides whether a request runs, for a handler that claims its key by
// itself: with idem.Store.BeginRecover, where a peer is to be asked what became of an
// attempt that nobody finished, or with DoTx.
type Request struct {
	Key         idem.Key
	Fingerprint idem.Fingerprint
	Body        []byte // whole
}

// Read reads a request as Handler does: the key by Config's Keys, Strict, Scope and
// Operation, the body up to MaxRequest, and the fingerprint of it all. Nothing is
// claimed. With Optional, a request without a key has an empty Key.Key, which package
// idem refuses: run it unprotected. r's body is consumed.
//
// Its errors are for WriteError: 400, 413, and 500 where Scope fails.
func (m *Middleware) Read(w http.ResponseWriter, r *http.Request) (Request, error) {
	key, err := m.keyOf(r)
	if err != nil {
		return Request{}, err
	}
	return m.read(w, r, key)
}

// keyOf is the request's key, or empty where it may be missing and is.
func (m *Middleware) keyOf(r *http.Request) (string, error) {
	key, err := parseKey(r.Header, m.cfg.Strict)
	if errors.Is(err, errKeyMissing) && m.cfg.Keys == Optional {
		return "", nil
	}
	return key, err
}

// read is the rest of Read.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request, key string) (req Request, err error) {
	req.Key.Key = key
	if req.Key.Scope, err = m.cfg.Scope(r); err != nil {
		return Request{}, fmt.Errorf("scope: %w", err)
	}
	req.Key.Operation = m.cfg.Operation(r)
	if req.Body, err = m.readBody(w, r); err != nil {
		return Request{}, err
	}
	req.Fingerprint = m.fingerprint(r, req.Body)
	return req, nil
}

// WriteResult answers with a reply, whose Status is 200 where it is zero. One that is
// replayed says so, as Handler's do: Idempotent-Replayed: true and Cache-Control:
// no-store; and headers that must not be replayed, such as Set-Cookie, are left out.
func WriteResult(w http.ResponseWriter, result idem.Result) {
	h := w.Header()
	for name, values := range result.Header {
		if !result.Replayed || storable(http.CanonicalHeaderKey(name)) {
			h[name] = slices.Clone(values)
		}
	}
	if result.Replayed {
		h.Set(replayedHeader, "true")
		h.Set("Cache-Control", "no-store")
	}
	status := cmp.Or(result.Status, http.StatusOK)
	w.WriteHeader(status)
	if bodyAllowed(status) {
		_, _ = w.Write(result.Body) // a client that is gone asks again
	}
}
