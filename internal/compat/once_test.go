package compat_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// shop is an application behind idemhttp, in some framework.
type shop struct {
	pool  *pgxpool.Pool
	table string
	scope string

	mu   sync.Mutex
	runs map[string]int
}

func newShop(t *testing.T) *shop {
	t.Helper()
	pool := pgtest.Pool(t)
	s := &shop{pool: pool, table: pgx.Identifier{"shop_" + rand.Text()}.Sanitize(), scope: pgtest.Name(t), runs: map[string]int{}}
	exec(t, pool, "CREATE TABLE "+s.table+" (what text)")
	return s
}

func (s *shop) once(t *testing.T, change ...func(*idemhttp.Config)) *idemhttp.Middleware {
	t.Helper()
	store, err := idem.New(s.pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := idemhttp.Config{
		Keys:  idemhttp.Required,
		Scope: func(*http.Request) (idem.Scope, error) { return idem.Scope(s.scope), nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	m, err := idemhttp.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *shop) effect(r *http.Request, what string) {
	if _, err := idem.Tx(r.Context()).Exec(r.Context(), "INSERT INTO "+s.table+" VALUES ($1)", what); err != nil {
		panic(err)
	}
}

// answer refuses the sku refused, and meets another transaction at the first of busy.
func (s *shop) answer(w http.ResponseWriter, r *http.Request, sku string) {
	s.mu.Lock()
	s.runs[sku]++
	run := s.runs[sku]
	s.mu.Unlock()
	s.effect(r, sku)
	switch {
	case sku == "refused":
		http.Error(w, "refused", http.StatusUnprocessableEntity)
		return
	case sku == "busy" && run == 1:
		_, err := idem.Tx(r.Context()).Exec(r.Context(), "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
		idemhttp.WriteError(w, fmt.Errorf("%w: %w", idem.ErrRetryTx, err))
		return
	}
	w.Header().Set("Location", "/"+sku)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s %d", sku, run)
}

// check sends requests to a framework's handler, whose routes are path and a sku.
func (s *shop) check(t *testing.T, h http.Handler, path string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	ask := func(sku, key string) (status int, location, replayed string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path+sku, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		return resp.StatusCode, resp.Header.Get("Location"), resp.Header.Get("Idempotent-Replayed")
	}
	status, _, _ := ask("busy", `"k0"`) // run again, or 503 and run again
	if status == http.StatusServiceUnavailable {
		status, _, _ = ask("busy", `"k0"`)
	}
	if status != http.StatusCreated {
		t.Errorf("busy: status %d", status)
	}
	for _, c := range []struct{ sku, key, want string }{
		{"book", `"k1"`, "201 /book "}, {"book", "k1", "201 /book true"}, {"book", `"k2"`, "201 /book "},
		{"refused", `"k3"`, "422  "}, {"refused", `"k3"`, "422  true"},
		{"book", "", "400  "},
	} {
		status, location, replayed := ask(c.sku, c.key)
		if got := fmt.Sprint(status, " ", location, " ", replayed); got != c.want {
			t.Errorf("%s under %s: got %q, want %q", c.sku, c.key, got, c.want)
		}
	}
	if got := value[string](t, s.pool, "SELECT string_agg(what, ' ' ORDER BY what) FROM "+s.table); got != "book book busy" {
		t.Errorf("effects are %q", got)
	}
}
