package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// shop is a service and its provider, both in this process.
type shop struct {
	*service
	t        *testing.T
	url      string
	provider *cardProvider
	calls    atomic.Int64                     // that the provider got
	handler  atomic.Pointer[http.HandlerFunc] // the provider's
}

// answerWith puts another one in the provider's place.
func (p *shop) answerWith(h http.HandlerFunc) { p.handler.Store(&h) }

func openShop(t *testing.T, url string, honoursKeys bool) *shop {
	t.Helper()
	p := &shop{t: t, url: url, provider: newCardProvider(&ledger{}, !honoursKeys, slog.New(slog.DiscardHandler))}
	p.answerWith(p.provider.routes().ServeHTTP)
	peers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.calls.Add(1)
		p.handler.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(peers.Close)
	p.service = instance(t, url, &peer{url: peers.URL, http: peers.Client(), honoursKeys: honoursKeys})
	return p
}

// instance is another service on the same database.
func instance(t *testing.T, url string, provider *peer) *service {
	t.Helper()
	pool, done, err := openDatabase(t.Context(), url, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	own := tablesIn("payments")
	if err := own.create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	store, err := idem.New(pool, idem.Config{Lease: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	once, err := once(store)
	if err != nil {
		t.Fatal(err)
	}
	return &service{tables: own, pool: pool, store: store, once: once, provider: provider, log: slog.New(slog.DiscardHandler)}
}

// ask sends a request to an instance. Fields of header are "name: value".
func ask(ctx context.Context, t *testing.T, s *service, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	h := s.routes()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	authenticated(h).ServeHTTP(w, r)
	return w
}

const (
	alice     = "Authorization: Bearer alice"
	key1      = `Idempotency-Key: "one"`
	theCharge = `{"order":1,"amount":1250,"card":"tok_visa"}`
)

func (p *shop) placeOrder() {
	p.t.Helper()
	if w := ask(p.t.Context(), p.t, p.service, "/orders", `{"amount":1250}`, alice, key1); w.Code != 201 {
		p.t.Fatalf("POST /orders: %d %s", w.Code, w.Body)
	}
}

// lapse backdates the claims, as if their service had been stopped for long.
func (p *shop) lapse() {
	p.t.Helper()
	tag, err := p.pool.Exec(p.t.Context(), `UPDATE gatepost.idempotency_keys
		SET lease_until = clock_timestamp() - interval '1 s' WHERE lease_until IS NOT NULL`)
	if err != nil || tag.RowsAffected() != 1 {
		p.t.Fatalf("%d claims lapsed, %v", tag.RowsAffected(), err)
	}
}

// wantCharges counts charges at the provider and in the database.
func (p *shop) wantCharges(booked, stored int) {
	p.t.Helper()
	var n int
	if err := p.pool.QueryRow(p.t.Context(), `SELECT count(*) FROM `+p.charges).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	if got := len(p.provider.ledger.all()); got != booked || n != stored {
		p.t.Errorf("%d charges at the provider and %d in the database, want %d and %d", got, n, booked, stored)
	}
}

func wantReply(t *testing.T, w *httptest.ResponseRecorder, status int, replayed bool, body string) {
	t.Helper()
	if w.Code != status || (w.Header().Get("Idempotent-Replayed") == "true") != replayed || !strings.Contains(w.Body.String(), body) {
		t.Errorf("%d %v %s; want %d, replayed %t, %q", w.Code, w.Header(), w.Body, status, replayed, body)
	}
}

func TestCharge_RefusesWhatItCantDoBeforeItClaims(t *testing.T) {
	t.Parallel()
	p := openShop(t, pgtest.Creator(t, pgtest.Database(t)), true)
	p.placeOrder()
	for what, c := range map[string]struct {
		body   string
		status int
		header []string
	}{
		"nobody":            {theCharge, 401, []string{key1}},
		"no key":            {theCharge, 400, []string{alice}},
		"two keys":          {theCharge, 400, []string{alice, key1, key1}},
		"a bare key":        {theCharge, 400, []string{alice, "Idempotency-Key: one"}},
		"half a key":        {theCharge, 400, []string{alice, `Idempotency-Key: "one`}},
		"a space":           {theCharge, 400, []string{alice, `Idempotency-Key: "o e"`}},
		"an empty key":      {theCharge, 400, []string{alice, `Idempotency-Key: ""`}},
		"no JSON":           {`order=1`, 400, []string{alice, key1}},
		"no amount":         {`{"order":1,"card":"tok_visa"}`, 400, []string{alice, key1}},
		"too much":          {strings.Repeat(" ", maxBody) + theCharge, 413, []string{alice, key1}},
		"no such order":     {`{"order":2,"amount":1250,"card":"tok_visa"}`, 404, []string{alice, key1}},
		"another's order":   {theCharge, 404, []string{"Authorization: Bearer bob", key1}},
		"a token of nobody": {theCharge, 401, []string{"Authorization: Bearer ", key1}},
	} {
		w := ask(t.Context(), t, p.service, "/charges", c.body, c.header...)
		if w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v %s, want %d", what, w.Code, w.Header(), w.Body, c.status)
		}
	}
	p.wantCharges(0, 0)
	if p.calls.Load() > 0 {
		t.Error("the provider was called")
	}
	wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, false, `"charge":"ch_1"`)
}

// An instance that was stopped, was taken over and wakes up has nothing to say.
func TestCharge_OfAnInstanceThatWasTakenOverIsAnsweredLater(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	p := openShop(t, url, true)
	p.placeOrder()
	other := instance(t, url, p.service.provider)
	inner := p.provider.routes()
	p.answerWith(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		if r.Method == http.MethodPost {
			p.lapse()
			wantReply(t, ask(t.Context(), t, other, "/charges", theCharge, alice, key1), 201, true, `"charge":"ch_1"`)
		}
	})
	w := ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1)
	wantReply(t, w, 409, false, "")
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("headers %v", w.Header())
	}
	wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, true, `"charge":"ch_1"`)
	p.wantCharges(1, 1)
}

func TestCharge_GoesOnWhenTheClientHangsUp(t *testing.T) {
	t.Parallel()
	p := openShop(t, pgtest.Creator(t, pgtest.Database(t)), true)
	p.placeOrder()
	ctx, hangUp := context.WithCancel(t.Context())
	inner := p.provider.routes()
	p.answerWith(func(w http.ResponseWriter, r *http.Request) {
		hangUp()
		inner.ServeHTTP(w, r)
	})
	ask(ctx, t, p.service, "/charges", theCharge, alice, key1)
	p.wantCharges(1, 1)
	wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, true, `"charge":"ch_1"`)
	if got := p.calls.Load(); got != 1 {
		t.Errorf("the provider was called %d times", got)
	}
}

// A provider that broke while it was charging is asked before it is told again, and as
// long as it can't be asked the charge is in progress.
func TestCharge_AsksTheProviderBeforeItTriesAgain(t *testing.T) {
	t.Parallel()
	for what, booked := range map[string]bool{"it had charged": true, "it had not": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := openShop(t, pgtest.Creator(t, pgtest.Database(t)), true)
			p.placeOrder()
			inner := p.provider.routes()
			p.answerWith(func(w http.ResponseWriter, r *http.Request) {
				if booked {
					inner.ServeHTTP(httptest.NewRecorder(), r)
				}
				p.answerWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
				panic(http.ErrAbortHandler)
			})
			w := ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1)
			wantReply(t, w, 503, false, "Send the same request again")
			if w.Header().Get("Retry-After") == "" {
				t.Errorf("headers %v", w.Header())
			}
			wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 409, false, "")
			p.answerWith(inner.ServeHTTP)
			p.lapse()
			wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, booked, `"charge":"ch_1"`)
			wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, true, `"charge":"ch_1"`)
			p.wantCharges(1, 1)
		})
	}
}

// With a provider that ignores keys, nothing found does not mean that nothing happens.
func TestCharge_StaysInProgressWhileNobodyKnows(t *testing.T) {
	t.Parallel()
	p := openShop(t, pgtest.Creator(t, pgtest.Database(t)), false)
	p.placeOrder()
	inner := p.provider.routes()
	p.answerWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 503, false, "")
	p.answerWith(inner.ServeHTTP)
	for range 3 {
		wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 409, false, "")
		p.lapse()
	}
	p.wantCharges(0, 0)
	k := idem.Key{Operation: "POST /charges", Scope: "alice", Key: "one"}
	if _, err := p.provider.ledger.add(k.ExternalKey(), 1250); err != nil { // it comes late
		t.Fatal(err)
	}
	wantReply(t, ask(t.Context(), t, p.service, "/charges", theCharge, alice, key1), 201, true, `"charge":"ch_1"`)
	p.wantCharges(1, 1)
}
