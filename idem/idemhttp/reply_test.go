package idemhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

func TestHandler_ReplaysAllowedHeadersAndNoOthers(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"Content-Type", "Content-Language", "Content-Disposition", "Content-Encoding", "Location", "Link", "ETag", "Last-Modified", "X-Order",
	}
	others := []string{
		"Set-Cookie", "Authorization", "Www-Authenticate", "Access-Control-Allow-Origin", "X-Request-Id", "Retry-After", "Vary", "Server",
	}
	a := serve(t, idemhttp.Config{StoreHeaders: []string{"x-order", "X-Hop", "X-Hop-Too"}}, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range slices.Concat(allowed, others) {
			w.Header().Add(name, "one")
			w.Header().Add(name, "two, three")
		}
		w.Header().Set("X-Hop", "of this connection")
		w.Header().Set("X-Hop-Too", "of this connection")
		w.Header().Set("Connection", "x-hop , x-hop-too")
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Idempotent-Replayed", "true") // not for the handler to say
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Order", "too late")
	})
	first := a.post("k", "{}")
	first.want(t, 201, false)
	second := a.post("k", "{}")
	second.want(t, 201, true)
	for _, name := range allowed {
		for _, got := range []reply{first, second} {
			if values := got.header.Values(name); !slices.Equal(values, []string{"one", "two, three"}) {
				t.Errorf("replayed %t: %s is %q", got.replayed(), name, values)
			}
		}
	}
	for _, name := range append(others, "X-Hop", "X-Hop-Too") {
		if values := first.header.Values(name); len(values) == 0 {
			t.Errorf("the first reply lacks %s", name)
		}
		if values := second.header.Values(name); len(values) != 0 {
			t.Errorf("the replay has %s: %q", name, values)
		}
	}
	if got := second.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("the replay's Cache-Control is %q", got)
	}
	if stored := a.stored("headers::text"); strings.Contains(stored, "Cookie") || strings.Contains(stored, "Request") {
		t.Errorf("stored headers: %s", stored)
	}
}

// stored is a column of the tenant's only row.
func (a *api) stored(column string) (text string) {
	a.t.Helper()
	err := a.pool.QueryRow(a.t.Context(), "SELECT "+column+" FROM gatepost.idempotency_keys WHERE scope = $1", a.tenant).Scan(&text)
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

func TestHandler_OuterMiddlewaresHeadersSurviveAndAreNotStored(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{StoreHeaders: []string{"X-Request-Id"}}, func(w http.ResponseWriter, _ *http.Request) {
		if w.Header().Get("X-Request-Id") == "" {
			t.Error("the handler can't see the outer middleware's header")
		}
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Link", "</handler>")
		w.Header().Del("X-Unwanted")
		fmt.Fprint(w, "x")
	})
	requests := 0
	inner := a.server.Config.Handler
	a.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("X-Request-Id", fmt.Sprint(requests))
		w.Header().Set("X-Unwanted", "x")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Link", "</outer>")
		inner.ServeHTTP(w, r)
	}))
	for i, want := range []string{"[1] [Origin Accept] [</outer> </handler>] []", "[2] [Origin] [</outer> </handler>] [x]"} {
		got := a.post("k", "{}")
		got.want(t, 200, i == 1)
		h := got.header
		if text := fmt.Sprint(h["X-Request-Id"], h["Vary"], h["Link"], h["X-Unwanted"]); text != want {
			t.Errorf("headers are %s, want %s", text, want)
		}
	}
	if stored := a.stored("headers::text"); strings.Contains(stored, "Request") {
		t.Errorf("stored headers: %s", stored)
	}
}

func TestHandler_WritesAReplyAsNetHTTPDoes(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		h    http.HandlerFunc
		want string // status, body, Content-Type, Content-Length
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, "200 [] [0]"},
		"twice": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.WriteHeader(202)
			fmt.Fprint(w, "x")
		}, "201 x [text/plain; charset=utf-8] [1]"},
		"late":        {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x"); w.WriteHeader(500) }, "200 x [text/plain; charset=utf-8] [1]"},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(201) }, "201 [] [0]"},
		"its length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "77")
			fmt.Fprint(w, "x")
		}, "200 x [text/plain; charset=utf-8] [1]"},
		"io.String":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "200 <html> [text/html; charset=utf-8] [6]"},
		"in parts":     {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a"); fmt.Fprint(w, "b") }, "200 ab [text/plain; charset=utf-8] [2]"},
		"no sniffing":  {func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; fmt.Fprint(w, "x") }, "200 x [] [1]"},
		"no content":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "204 [] []"},
		"not modified": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, "304 [] []"},
		"a body that may not be": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := fmt.Fprint(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}, "204 [] []"},
	} {
		a := serve(t, idemhttp.Config{}, c.h)
		for _, replayed := range []bool{false, true} {
			got := a.post("k", "{}")
			text := fmt.Sprint(got.status, " ", got.body, got.header["Content-Type"], " ", got.header["Content-Length"])
			if got.body != "" {
				text = fmt.Sprint(got.status, " ", got.body, " ", got.header["Content-Type"], " ", got.header["Content-Length"])
			}
			if text != c.want || got.replayed() != replayed {
				t.Errorf("%s, replayed %t: got %s, want %s", what, got.replayed(), text, c.want)
			}
		}
	}
}

func TestHandler_SendsTrailers(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			w.Header().Set("Trailer", "X-Sum")
		}
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", "4")
		w.Header().Set(http.TrailerPrefix+"X-Prefixed", "5")
	})
	got := a.post("k", "{}")
	if got.body != "body" || got.trailer.Get("X-Sum") != "4" || got.trailer.Get("X-Prefixed") != "5" {
		t.Errorf("%q with the trailers %v", got.body, got.trailer)
	}
	if got := a.send("POST", "/orders?prefixed", "k2", "{}"); got.trailer.Get("X-Prefixed") != "5" || got.trailer.Get("X-Sum") != "" {
		t.Errorf("trailers are %v", got.trailer)
	}
	got = a.post("k", "{}")
	got.want(t, 200, true)
	if got.body != "body" || len(got.trailer) != 0 {
		t.Errorf("the replay is %q with the trailers %v", got.body, got.trailer)
	}
}

func TestHandler_RefusesWhatGoesOutBeforeCommit(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		ctl := http.NewResponseController(&wrapped{w})
		_, _, hijack := ctl.Hijack()
		_, flusher := w.(http.Flusher)
		deadline := errors.Join(ctl.SetReadDeadline(time.Time{}), ctl.SetWriteDeadline(time.Now().Add(time.Minute)))
		fmt.Fprint(w, errors.Is(ctl.Flush(), http.ErrNotSupported), errors.Is(hijack, http.ErrNotSupported), flusher, deadline)
	})
	if got := a.post("k", "{}"); got.body != "true true false <nil>" {
		t.Errorf("Flush and Hijack refused, a Flusher, and errors of deadlines: %s", got.body)
	}
}

func TestHandler_APanicRollsBackAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"boom", http.ErrAbortHandler, 17} {
		var a *api
		panics := true
		a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			a.effect(r, "x")
			fmt.Fprint(w, "x")
			if panics {
				panic(value)
			}
		})
		inner := a.server.Config.Handler
		seen := make(chan any, 1)
		a.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if v := recover(); v != nil {
					seen <- v
					w.WriteHeader(http.StatusTeapot)
				}
			}()
			inner.ServeHTTP(w, r)
		}))
		a.post("k", "{}").want(t, 418, false)
		if got := <-seen; got != value {
			t.Errorf("the panic went on as %v, want %v", got, value)
		}
		a.wantEffects(0)
		panics = false
		a.post("k", "{}").want(t, 200, false)
		a.wantEffects(1)
	}
}

func TestHandler_AStatusThatIsNoneIsAPanicOfTheHandlers(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		defer func() {
			if recover() == nil {
				t.Error("WriteHeader(99) was taken")
			}
			w.WriteHeader(http.StatusAccepted)
		}()
		w.WriteHeader(99)
	})
	a.post("k", "{}").want(t, 202, false)
}

// The transaction of a handler can't be had to commit early.
func TestHandler_TheTransactionIsTheMiddlewares(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "x")
		if idem.Tx(r.Context()).Commit(r.Context()) == nil {
			t.Error("the handler committed")
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	a.post("k", "{}").want(t, 500, false)
	a.wantEffects(0)
}
