package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gatepost/gatepost/idem"
)

// Streaming protects a route whose reply must leave while it is made, or whose effects
// are in another system, in lease mode: the claim is committed first, next gets the
// real connection, where Flush works, and the reply is stored when it returns. There is
// no transaction around next, and idem.Tx gives none. Attempt gives it the claim.
//
// What a client is answered, and what is stored, is as with Handler; 409 tells what is
// left of the lease. Whatever is not stored releases the key: a reply of 5xx, an error
// that passes (WriteError), a panic, a client that is gone, a connection that was
// hijacked. A crash leaves the key until the lease has lapsed. Then another request
// runs next again, and finds Attempt's Previous set: what this one did may have
// happened. The context of next ends with the client, and with the claim; where next
// goes on without either, it calls Attempt's Finish by itself.
//
// Nobody is asked whether it happened: next runs again for whoever comes. Where that
// must not be, next asks its peer when Previous is set, or the route is written with
// Read, idem.Store.BeginRecover and WriteResult, which runs nothing while the answer is
// that nobody knows.
//
// A reply over idem.Config.MaxBody is stored as a tombstone, whose size is the limit
// and one byte. Where the reply can't be stored, because another attempt has taken the
// key over or the database is gone, the connection is cut, so that the client doesn't
// take for whole what may be run again.
func (m *Middleware) Streaming(next http.Handler) http.Handler {
	return m.protect(next, func(w http.ResponseWriter, r *http.Request, req Request) {
		a, err := m.store.Begin(r.Context(), req.Key, req.Fingerprint)
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		if reply, ok := a.Replay(); ok {
			WriteResult(w, idem.Result{Reply: reply, Replayed: true})
			return
		}
		m.stream(w, r, req, a, next)
	})
}

type attemptKey struct{}

// Attempt is the claim that a handler of Streaming runs under, from its context; nil
// elsewhere.
func Attempt(ctx context.Context) *idem.Attempt {
	a, _ := ctx.Value(attemptKey{}).(*idem.Attempt)
	return a
}

// endTimeout bounds end.
const endTimeout = 5 * time.Second

func (m *Middleware) stream(w http.ResponseWriter, r *http.Request, req Request, a *idem.Attempt, next http.Handler) {
	defer m.release(r.Context(), req.Key, a) // also behind a panic
	ctx, cancel := a.Context(context.WithValue(r.Context(), attemptKey{}, a))
	defer cancel()
	t := newTee(w, m.store.MaxBody())
	next.ServeHTTP(t, again(ctx, r, req.Body))
	if r.Context().Err() != nil || !t.complete() {
		return
	}
	err := m.end(r.Context(), req.Key, func(ctx context.Context) error {
		return a.Finish(ctx, t.reply(m.cfg.StoreHeaders), nil)
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// release does nothing after Finish.
func (m *Middleware) release(ctx context.Context, key idem.Key, a *idem.Attempt) {
	_ = m.end(ctx, key, a.Release) // end has told the operator, and the claim lapses
}

// end ends an attempt, also when the client has gone meanwhile.
func (m *Middleware) end(ctx context.Context, key idem.Key, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := do(ctx)
	if err == nil || errors.Is(err, idem.ErrEnded) { // next has finished it
		return nil
	}
	m.cfg.Logger.ErrorContext(ctx, "streamed reply not stored", "operation", key.Operation, "err", err)
	return err
}
