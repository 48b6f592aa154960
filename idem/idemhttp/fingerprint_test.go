package idemhttp_test

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// request is what a fingerprint is made of.
type request struct {
	method, pattern, target, media, encoding, body string
}

func fingerprints(t *testing.T, canonical bool) func(request) idem.Fingerprint {
	t.Helper()
	a := serve(t, idemhttp.Config{}, nil)
	store, err := idem.New(a.pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Config{Keys: idemhttp.Required, Scope: a.scope, CanonicalJSON: canonical})
	if err != nil {
		t.Fatal(err)
	}
	return func(q request) idem.Fingerprint {
		r := httptest.NewRequestWithContext(t.Context(), q.method, q.target, strings.NewReader(q.body))
		r.Pattern = q.pattern
		for name, value := range map[string]string{"Content-Type": q.media, "Content-Encoding": q.encoding} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		return idemhttp.Fingerprint(m, r, []byte(q.body))
	}
}

var base = request{"POST", "POST /orders/{id}", "/orders/7?a=1&b=2", "application/json", "", `{"a":1,"b":2}`}

// with is base with one change.
func with(change func(*request)) request {
	r := base
	change(&r)
	return r
}

func TestFingerprint_TellsRequestsApart(t *testing.T) {
	t.Parallel()
	different := map[string]request{
		"base":           base,
		"method":         with(func(r *request) { r.method = "PATCH" }),
		"pattern":        with(func(r *request) { r.pattern = "POST /orders/{order}" }),
		"path":           with(func(r *request) { r.target = "/orders/8?a=1&b=2" }),
		"slash in path":  with(func(r *request) { r.target = "/orders%2f7?a=1&b=2" }),
		"no query":       with(func(r *request) { r.target = "/orders/7" }),
		"query value":    with(func(r *request) { r.target = "/orders/7?a=1&b=3" }),
		"query name":     with(func(r *request) { r.target = "/orders/7?a=1&c=2" }),
		"query pair":     with(func(r *request) { r.target = "/orders/7?a=1&b=2&b=2" }),
		"query values":   with(func(r *request) { r.target = "/orders/7?a=1&b=2&b=3" }),
		"their order":    with(func(r *request) { r.target = "/orders/7?a=1&b=3&b=2" }),
		"moved equals":   with(func(r *request) { r.target = "/orders/7?a=1&b2=" }),
		"moved a letter": with(func(r *request) { r.target = "/orders/7?a=1b&=2" }),
		"media type":     with(func(r *request) { r.media = "text/plain" }),
		"charset":        with(func(r *request) { r.media = "text/plain; charset=latin1" }),
		"no media type":  with(func(r *request) { r.media = "" }),
		"encoding":       with(func(r *request) { r.encoding = "gzip" }),
		"body":           with(func(r *request) { r.body = `{"a":1,"b":3}` }),
		"number":         with(func(r *request) { r.body = `{"a":1,"b":2.0}` }),
		"no body":        with(func(r *request) { r.body = "" }),
		"array":          with(func(r *request) { r.body = "[1,2]" }),
		"array's order":  with(func(r *request) { r.body = "[2,1]" }),
		"twice a name":   with(func(r *request) { r.body = `{"a":1,"b":2,"b":2}` }),
		"moved to body":  with(func(r *request) { r.media, r.body = "", `application/json{"a":1,"b":2}` }),
	}
	for _, canonical := range []bool{false, true} {
		fingerprint := fingerprints(t, canonical)
		seen := map[idem.Fingerprint]string{}
		for what, r := range different {
			fp := fingerprint(r)
			if other, ok := seen[fp]; ok {
				t.Errorf("canonical %t: %s and %s have one fingerprint", canonical, what, other)
			}
			seen[fp] = what
		}
	}
}

func TestFingerprint_IsOneForARetry(t *testing.T) {
	t.Parallel()
	raw, canonical := fingerprints(t, false), fingerprints(t, true)
	for what, r := range map[string]request{
		"again":                    base,
		"the order of query names": with(func(r *request) { r.target = "/orders/7?b=2&a=1" }),
		"empty query pairs":        with(func(r *request) { r.target = "/orders/7?&b=2&&a=1&" }),
		"letters of the media":     with(func(r *request) { r.media = "Application/JSON" }),
	} {
		if raw(r) != raw(base) || canonical(r) != canonical(base) {
			t.Errorf("%s makes another fingerprint", what)
		}
	}
	for _, fingerprint := range []func(request) idem.Fingerprint{raw, canonical} {
		if fingerprint(with(func(r *request) { r.encoding = "GZIP" })) != fingerprint(with(func(r *request) { r.encoding = "gzip" })) {
			t.Error("the letters of the encoding make another fingerprint")
		}
	}
	for what, r := range map[string]request{
		"the order of members": with(func(r *request) { r.body = `{"b":2,"a":1}` }),
		"white space":          with(func(r *request) { r.body = "{ \"a\": 1,\n\"b\": 2 }" }),
		"escapes":              with(func(r *request) { r.body = `{"\u0061":1,"b":2}` }),
		"a charset of JSON":    with(func(r *request) { r.media = "application/json; charset=utf-8" }),
	} {
		if canonical(r) != canonical(base) {
			t.Errorf("%s makes another fingerprint although it is canonical", what)
		}
		if raw(r) == raw(base) {
			t.Errorf("%s makes the same fingerprint of raw bodies", what)
		}
	}
	for what, change := range map[string]func(*request){
		"in another media type": func(r *request) { r.media = "text/plain" },
		"compressed":            func(r *request) { r.encoding = "br" },
	} {
		first, second := with(change), with(change)
		second.body = `{"b":2,"a":1}`
		if canonical(first) == canonical(second) {
			t.Errorf("%s a body was read as JSON", what)
		}
	}
	for _, media := range []string{"application/vnd.api+json", "application/merge-patch+json"} {
		first, second := with(func(r *request) { r.media = media }), with(func(r *request) { r.media, r.body = media, `{"b":2,"a":1}` })
		if canonical(first) != canonical(second) {
			t.Errorf("%s was not read as JSON", media)
		}
	}
}

// A record may be as old as its retention: a release that makes fingerprints in another way
// refuses the retries of what an earlier one has run.
func TestFingerprint_IsThatOfEveryRelease(t *testing.T) {
	t.Parallel()
	full := request{"POST", "POST /orders/{id}", "/orders/%2f7?b=2&a=1&a=%20", "application/json; charset=utf-8", "gzip, BR", "{}"}
	for _, c := range []struct {
		canonical bool
		request   request
		want      string
	}{
		{false, base, "b906cd9f0670f037b206ceae8e1bea5e0497b296c3e93400645fda7e01963759"},
		{false, full, "24e0cd3bcfa3206084df693b33b8dcb435742f0bd77336f15461a6d5a968d25f"},
		{true, with(func(r *request) { r.body = `{"b": [1.0, "\u00e9<"], "a": null}` }), "08cf6f88d1dea649a649b396d0867dec0870dda145ffc1029b1e8054eaf6cade"},
	} {
		got := fingerprints(t, c.canonical)(c.request)
		if text := hex.EncodeToString(got[:]); text != c.want {
			t.Errorf("%+v has the fingerprint %s, want %s", c.request, text, c.want)
		}
	}
}

func TestHandler_MismatchesByQueryMediaTypeMethodAndBody(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{Methods: []string{"PUT", "PATCH"}, CanonicalJSON: true, Operation: func(*http.Request) string { return "change" }}, created(&a))
	a.send("PUT", "/orders/7?a=1&b=2", "k", `{"a":1,"b":2}`).want(t, 201, false)
	a.send("PUT", "/orders/7?b=2&a=1", "k", `{ "b":2, "a":1 }`).want(t, 201, true)
	for what, got := range map[string]reply{
		"query":      a.send("PUT", "/orders/7?a=1&b=3", "k", `{"a":1,"b":2}`),
		"path":       a.send("PUT", "/orders/8?a=1&b=2", "k", `{"a":1,"b":2}`),
		"method":     a.send("PATCH", "/orders/7?a=1&b=2", "k", `{"a":1,"b":2}`),
		"media type": a.send("PUT", "/orders/7?a=1&b=2", "k", `{"a":1,"b":2}`, "Content-Type", "text/plain"),
		"body":       a.send("PUT", "/orders/7?a=1&b=2", "k", `{"a":1,"b":3}`),
	} {
		if got.status != 422 {
			t.Errorf("another %s: status %d, want 422", what, got.status)
		}
	}
	a.wantEffects(1)
}
