package idemhttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
)

func middleware(t *testing.T, cfg idemhttp.Config) *idemhttp.Middleware {
	t.Helper()
	store, err := idem.New(pgtest.Pool(t), idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Scope == nil {
		cfg.Scope = func(*http.Request) (idem.Scope, error) { return "tenant", nil }
	}
	m, err := idemhttp.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func post(body string, keys ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Pattern = "POST /charges"
	for _, k := range keys {
		r.Header.Add("Idempotency-Key", k)
	}
	return r
}

func TestRead_ReadsARequestAsHandlerDoes(t *testing.T) {
	t.Parallel()
	m := middleware(t, idemhttp.Config{Keys: idemhttp.Required, CanonicalJSON: true, MaxRequest: 20})
	read := func(r *http.Request) idemhttp.Request {
		r.Header.Set("Content-Type", "application/json")
		got, err := m.Read(httptest.NewRecorder(), r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := read(post(`{"a":1,"b":2}`, `"k"`))
	if want := (idem.Key{Operation: "POST /charges", Scope: "tenant", Key: "k"}); first.Key != want || string(first.Body) != `{"a":1,"b":2}` {
		t.Errorf("got %+v, want %+v", first, want)
	}
	if read(post(`{"b":2, "a":1}`, `k`)).Fingerprint != first.Fingerprint || read(post(`{"a":2}`, `k`)).Fingerprint == first.Fingerprint {
		t.Error("the fingerprint isn't the configured one")
	}

	broken := middleware(t, idemhttp.Config{Keys: idemhttp.Required, Scope: func(*http.Request) (idem.Scope, error) { return "", errors.New("who") }})
	for what, c := range map[string]struct {
		m      *idemhttp.Middleware
		r      *http.Request
		status int
		kind   string
	}{
		"no key":      {m, post("{}"), 400, idemhttp.TypeKeyMissing},
		"two keys":    {m, post("{}", "a", "b"), 400, idemhttp.TypeKeyMalformed},
		"a long body": {m, post(strings.Repeat(" ", 21), "a"), 413, idemhttp.TypeBodyTooLarge},
		"no scope":    {broken, post("{}", "a"), 500, idemhttp.TypeInternal},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			got, err := c.m.Read(w, c.r)
			if err == nil || got.Key != (idem.Key{}) || got.Body != nil {
				t.Fatalf("Read: %+v, %v", got, err)
			}
			idemhttp.WriteError(w, err)
			reply{status: w.Code, header: w.Result().Header, body: w.Body.String()}.wantProblem(t, c.status, c.kind)
		})
	}
}

// What is run without looking at the key is refused, and not run under an empty one.
func TestRead_OfAnOptionalKeyThatIsMissing(t *testing.T) {
	t.Parallel()
	m := middleware(t, idemhttp.Config{Keys: idemhttp.Optional})
	got, err := m.Read(httptest.NewRecorder(), post("{}"))
	if err != nil || got.Key.Key != "" || string(got.Body) != "{}" {
		t.Fatalf("Read: %+v, %v", got, err)
	}
	store, err := idem.New(pgtest.Pool(t), idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Begin(t.Context(), got.Key, got.Fingerprint); !errors.Is(err, idem.ErrInvalidKey) {
		t.Errorf("Begin: %v, want ErrInvalidKey", err)
	}
}

func TestWriteResult_SaysSoOfAReplay(t *testing.T) {
	t.Parallel()
	stored := idem.Reply{
		Status: 201, Body: []byte("\x00body"),
		Header: http.Header{"Location": {"/1"}, "Set-Cookie": {"a=b"}, "authorization": {"x"}, "Cache-Control": {"public"}},
	}
	for _, replayed := range []bool{false, true} {
		w := httptest.NewRecorder()
		idemhttp.WriteResult(w, idem.Result{Reply: stored, Replayed: replayed})
		h := w.Result().Header
		if w.Code != 201 || w.Body.String() != "\x00body" || h.Get("Location") != "/1" {
			t.Errorf("replayed %t: %d %v %q", replayed, w.Code, h, w.Body)
		}
		if got := h.Get("Idempotent-Replayed") == "true"; got != replayed || (h.Get("Cache-Control") == "no-store") != replayed {
			t.Errorf("replayed %t: headers are %v", replayed, h)
		}
		if got := h.Get("Set-Cookie") != "" || h["authorization"] != nil; got == replayed {
			t.Errorf("replayed %t: headers are %v", replayed, h)
		}
	}
	w := httptest.NewRecorder()
	idemhttp.WriteResult(w, idem.Result{Reply: idem.Reply{Body: []byte("x")}})
	if w.Code != 200 || w.Body.String() != "x" {
		t.Errorf("without a status: %d %q", w.Code, w.Body)
	}
	if len(stored.Header) != 4 {
		t.Error("the reply was changed")
	}
}
