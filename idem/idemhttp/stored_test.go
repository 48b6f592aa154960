package idemhttp_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

func TestHandler_StoresWhatIsAnOutcomeAndUndoesWhatIsNot(t *testing.T) {
	t.Parallel()
	var a *api
	runs := 0
	a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		runs++
		status, err := strconv.Atoi(r.URL.Query().Get("status"))
		if err != nil {
			panic(err)
		}
		a.effect(r, "")
		w.WriteHeader(status)
		fmt.Fprintf(w, "run %d", runs)
	})
	effects := 0
	for status, want := range map[int]struct{ stored, kept bool }{
		200: {true, true}, 201: {true, true}, 202: {true, true}, 299: {true, true},
		300: {true, true}, 302: {true, true}, 303: {true, true}, 307: {true, true},
		400: {true, false}, 402: {true, false}, 404: {true, false}, 409: {true, false}, 412: {true, false}, 422: {true, false}, 499: {true, false},
		401: {}, 403: {}, 408: {}, 421: {}, 425: {}, 429: {},
		500: {}, 501: {}, 502: {}, 503: {}, 504: {}, 599: {}, 600: {}, 999: {},
	} {
		path, key := fmt.Sprintf("/orders?status=%d", status), fmt.Sprintf("k%d", status)
		a.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		first := a.send("POST", path, key, "{}")
		first.want(t, status, false)
		second := a.send("POST", path, key, "{}")
		second.want(t, status, want.stored)
		if (first.body == second.body) != want.stored {
			t.Errorf("%d: bodies %q and %q, stored is %t", status, first.body, second.body, want.stored)
		}
		if want.kept {
			effects++
		}
		a.wantEffects(effects)
	}
}

func TestHandler_KeepWritesKeepsThoseOfARefusal(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "declined")
		idemhttp.KeepWrites(&wrapped{w})
		http.Error(w, "declined", http.StatusPaymentRequired)
	})
	a.post("k", "{}").want(t, 402, false)
	a.post("k", "{}").want(t, 402, true)
	a.wantEffects(1)
}

// wrapped is what a handler's own middleware puts over a ResponseWriter.
type wrapped struct{ http.ResponseWriter }

func (w *wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A handler's own 409 is an outcome; one that WriteError makes of an error that passes
// is of the moment.
func TestHandler_StoresNoErrorThatPasses(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&idem.InProgressError{}, idem.ErrFenced, idem.ErrUnavailable} {
		var a *api
		fail := true
		a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			a.effect(r, "x")
			if fail {
				idemhttp.WriteError(&wrapped{w}, err)
			}
		})
		if got := a.post("k", "{}"); got.status != 409 && got.status != 503 || got.header.Get("Retry-After") == "" {
			t.Errorf("%v: %+v", err, got)
		}
		fail = false
		a.post("k", "{}").want(t, 200, false)
		a.wantEffects(1)
	}
}

func TestHandler_OnlyItsMethodsAreProtected(t *testing.T) {
	t.Parallel()
	var a *api
	h := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, idem.Tx(r.Context()) != nil) }
	a = serve(t, idemhttp.Config{}, h)
	for method, want := range map[string]string{"POST": "true", "GET": "false", "OPTIONS": "false"} {
		if got := a.send(method, "/orders", "k", ""); got.body != want {
			t.Errorf("%s: in a transaction %s, want %s", method, got.body, want)
		}
	}
	for method, want := range map[string]string{"PATCH": "true", "PUT": "false", "DELETE": "false"} {
		if got := a.send(method, "/orders/7", "k", ""); got.body != want {
			t.Errorf("%s: in a transaction %s, want %s", method, got.body, want)
		}
	}
	a = serve(t, idemhttp.Config{Methods: []string{"PUT", "DELETE"}}, h)
	for method, want := range map[string]string{"PATCH": "false", "PUT": "true", "DELETE": "true"} {
		if got := a.send(method, "/orders/7", "k", ""); got.body != want {
			t.Errorf("%s: in a transaction %s, want %s", method, got.body, want)
		}
	}
}

func TestHandler_AKeyIsOneScopesAndOneRoutes(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	for range 2 {
		a.post("k", "{}", "Tenant", "1")
		a.post("k", "{}", "Tenant", "2")
		a.send("POST", "/refunds", "k", "{}", "Tenant", "1")
	}
	a.wantEffects(3)
	a.post("k", "{}", "Tenant", "1").want(t, 201, true)

	var b *api
	b = serve(t, idemhttp.Config{Operation: func(*http.Request) string { return "anything" }}, created(&b))
	b.post("k", "{}").want(t, 201, false)
	b.send("POST", "/refunds", "k", "{}").wantProblem(t, 422, idemhttp.TypeKeyReused)
}

func TestNew_RefusesWhatCantBe(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, nil)
	store, err := idem.New(a.pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	good := idemhttp.Config{Keys: idemhttp.Required, Scope: a.scope}
	if _, err := idemhttp.New(nil, good); err == nil {
		t.Error("New took no store")
	}
	for what, change := range map[string]func(*idemhttp.Config){
		"no Keys":        func(c *idemhttp.Config) { c.Keys = 0 },
		"other Keys":     func(c *idemhttp.Config) { c.Keys = 3 },
		"no Scope":       func(c *idemhttp.Config) { c.Scope = nil },
		"MaxRequest -1":  func(c *idemhttp.Config) { c.MaxRequest = -1 },
		"GET":            func(c *idemhttp.Config) { c.Methods = []string{"POST", "GET"} },
		"HEAD":           func(c *idemhttp.Config) { c.Methods = []string{"HEAD"} },
		"OPTIONS":        func(c *idemhttp.Config) { c.Methods = []string{"OPTIONS"} },
		"post":           func(c *idemhttp.Config) { c.Methods = []string{"post"} },
		"no header name": func(c *idemhttp.Config) { c.StoreHeaders = []string{""} },
	} {
		cfg := good
		change(&cfg)
		if _, err := idemhttp.New(store, cfg); err == nil {
			t.Errorf("New took a Config with %s", what)
		}
	}
	for _, name := range []string{
		"Set-Cookie", "set-cookie", "SET-COOKIE2", "Authorization", "WWW-Authenticate", "Proxy-Authorization", "Date",
		"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
		"Access-Control-Allow-Origin", "access-control-expose-headers", "Idempotent-Replayed", "Cache-Control",
		"Cookie", "Authentication-Info", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Connection", "Age", "Retry-After",
		"Clear-Site-Data", "Idempotency-Key", "Trailer:X-Sum",
	} {
		cfg := good
		cfg.StoreHeaders = []string{"X-Fine", name}
		if _, err := idemhttp.New(store, cfg); err == nil {
			t.Errorf("New took %s to be stored", name)
		}
	}
}
