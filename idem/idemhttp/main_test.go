package idemhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// api is a service with one table and one middleware.
type api struct {
	t      *testing.T
	pool   *pgxpool.Pool
	table  pgx.Identifier
	tenant string // of requests that name none
	server *httptest.Server
}

// serve starts a service whose routes POST /orders and PUT, PATCH and DELETE
// /orders/{id} are h behind the middleware.
func serve(t *testing.T, cfg idemhttp.Config, h http.HandlerFunc) *api {
	t.Helper()
	return serveStore(t, pgtest.Pool(t), idem.Config{}, cfg, h)
}

func serveStore(t *testing.T, pool *pgxpool.Pool, storeCfg idem.Config, cfg idemhttp.Config, h http.HandlerFunc) *api {
	t.Helper()
	store, err := idem.New(pool, storeCfg)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Keys == 0 {
		cfg.Keys = idemhttp.Required
	}
	a := &api{t: t, pool: pool, table: effects(t, pool), tenant: pgtest.Name(t)}
	if cfg.Scope == nil {
		cfg.Scope = a.scope
	}
	m, err := idemhttp.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.route(m.Handler(h))
	return a
}

// serveStreaming is serve in lease mode.
func serveStreaming(t *testing.T, storeCfg idem.Config, cfg idemhttp.Config, h http.HandlerFunc) *api {
	t.Helper()
	a := serveStore(t, pgtest.Pool(t), idem.Config{}, cfg, nil)
	store, err := idem.New(a.pool, storeCfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Keys, cfg.Scope = idemhttp.Required, a.scope
	m, err := idemhttp.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.route(m.Streaming(h))
	return a
}

func (a *api) route(h http.Handler) {
	mux := http.NewServeMux()
	for _, route := range []string{
		"POST /orders", "POST /refunds", "GET /orders", "OPTIONS /orders", "HEAD /head",
		"PUT /orders/{id}", "PATCH /orders/{id}", "DELETE /orders/{id}",
	} {
		mux.Handle(route, h)
	}
	a.listen(mux)
}

func (a *api) listen(h http.Handler) {
	a.server = httptest.NewServer(h)
	a.t.Cleanup(a.server.Close)
}

func (a *api) scope(r *http.Request) (idem.Scope, error) {
	if tenant := r.Header.Get("Tenant"); tenant != "" {
		return idem.Scope(a.tenant + tenant), nil
	}
	return idem.Scope(a.tenant), nil
}

// effects makes a table with a row an effect.
func effects(t *testing.T, pool *pgxpool.Pool) pgx.Identifier {
	t.Helper()
	name := pgx.Identifier{"public", "e_" + strings.ToLower(pgtest.Name(t)[len(pgtest.Name(t))-10:])}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE "+name.Sanitize()+" (seq bigint GENERATED ALWAYS AS IDENTITY, what text)"); err != nil {
		t.Fatal(err)
	}
	return name
}

// effect writes a row in the handler's transaction.
func (a *api) effect(r *http.Request, what string) {
	if _, err := idem.Tx(r.Context()).Exec(r.Context(), "INSERT INTO "+a.table.Sanitize()+" (what) VALUES ($1)", what); err != nil {
		panic(err)
	}
}

func (a *api) wantEffects(want int) {
	a.t.Helper()
	var got int
	if err := a.pool.QueryRow(a.t.Context(), "SELECT count(*) FROM "+a.table.Sanitize()).Scan(&got); err != nil {
		a.t.Fatal(err)
	}
	if got != want {
		a.t.Errorf("%d effects, want %d", got, want)
	}
}

// reply is an answer, read to its end.
type reply struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// post sends POST /orders under a key; headers come in pairs.
func (a *api) post(key, body string, headers ...string) reply {
	a.t.Helper()
	return a.send("POST", "/orders", key, body, headers...)
}

func (a *api) send(method, path, key, body string, headers ...string) reply {
	a.t.Helper()
	got, err := a.try(method, path, key, body, headers...)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

func (a *api) try(method, path, key, body string, headers ...string) (reply, error) {
	return a.tryReader(method, path, key, strings.NewReader(body), headers...)
}

// tryReader sends a body in chunks unless its length can be told.
func (a *api) tryReader(method, path, key string, body io.Reader, headers ...string) (reply, error) {
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.server.URL+path, body)
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.server.Client().Do(r)
	if err != nil {
		return reply{}, err
	}
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, resp.Trailer, string(text)}, errors.Join(err, resp.Body.Close())
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// want checks the status, and whether it is a replay.
func (r reply) want(t *testing.T, status int, replayed bool) {
	t.Helper()
	if r.status != status || r.replayed() != replayed {
		t.Errorf("status %d, replayed %t, want %d and %t:\n%.300s", r.status, r.replayed(), status, replayed, r.body)
	}
}

// wantProblem checks an answer of the middleware's own.
func (r reply) wantProblem(t *testing.T, status int, kind string) {
	t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("status %d, %v:\n%.300s", r.status, err, r.body)
	}
	if r.status != status || p.Status != status || p.Type != kind || p.Title == "" || p.Detail == "" {
		t.Errorf("status %d with %+v, want %d of type %s", r.status, p, status, kind)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %s", got)
	}
	if got := r.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q", got)
	}
}

// created answers 201 after an effect.
func created(a **api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		(*a).effect(r, "created")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "created")
	}
}

// poolWith is a pool with settings of the test's own.
func poolWith(t *testing.T, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, pgtest.URL(t), change)
}
