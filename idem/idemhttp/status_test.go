package idemhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// Each row of the table of statuses.

func TestHandler_MissingOrMalformedKeyIs400(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	a.post("", "{}").wantProblem(t, 400, idemhttp.TypeKeyMissing)
	for _, key := range []string{`""`, `"a b"`, "a b", `"a`, strings.Repeat("k", 256)} {
		a.post(key, "{}").wantProblem(t, 400, idemhttp.TypeKeyMalformed)
	}
	a.post("", "{}", "Idempotency-Key", "").wantProblem(t, 400, idemhttp.TypeKeyMalformed)
	a.wantEffects(0)
}

func TestHandler_OptionalKeyRunsUnprotectedWhereItIsMissing(t *testing.T) {
	t.Parallel()
	var inTx []bool
	a := serve(t, idemhttp.Config{Keys: idemhttp.Optional}, func(_ http.ResponseWriter, r *http.Request) {
		inTx = append(inTx, idem.Tx(r.Context()) != nil)
	})
	a.post("", "{}").want(t, 200, false)
	a.post("", "{}").want(t, 200, false)
	a.post("k", "{}").want(t, 200, false)
	a.post("k", "{}").want(t, 200, true)
	a.post(`""`, "{}").wantProblem(t, 400, idemhttp.TypeKeyMalformed)
	if got := fmt.Sprint(inTx); got != "[false false true]" {
		t.Errorf("runs in a transaction: %s", got)
	}
}

func TestHandler_QuotedAndBareAreOneKey(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	a.post("abc", "{}").want(t, 201, false)
	a.post(`"abc"`, "{}").want(t, 201, true)
	a.post(`"abc";x=1`, "{}").want(t, 201, true)
	a.post("ABC", "{}").want(t, 201, false)

	a = serve(t, idemhttp.Config{Strict: true}, created(&a))
	a.post("abc", "{}").wantProblem(t, 400, idemhttp.TypeKeyMalformed)
	a.post(`"abc"`, "{}").want(t, 201, false)
}

func TestHandler_MismatchIs422AndEchoesNothing(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/secret/17")
		fmt.Fprint(w, "secret")
	})
	a.post("k", "payload-1").want(t, 200, false)
	got := a.post("k", "payload-2")
	got.wantProblem(t, 422, idemhttp.TypeKeyReused)
	if text := fmt.Sprint(got); strings.Contains(text, "secret") || strings.Contains(text, "payload") {
		t.Errorf("the answer has stored data: %s", text)
	}
	a.post("k", "payload-1").want(t, 200, true)
}

func TestHandler_InProgressIs409WithRetryAfter(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan bool), make(chan bool)
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		entered <- true
		<-leave
		fmt.Fprint(w, "done")
	})
	first := make(chan reply)
	go func() {
		got, err := a.try("POST", "/orders", "k", "{}")
		if err != nil {
			t.Error(err)
		}
		first <- got
	}()
	<-entered
	got := a.post("k", "{}")
	got.wantProblem(t, 409, idemhttp.TypeInProgress)
	if after := got.header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After is %q, want 1", after)
	}
	leave <- true
	(<-first).want(t, 200, false)
	a.post("k", "{}").want(t, 200, true)
}

func TestHandler_TellsWhatIsLeftOfALease(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]string{
		time.Hour: "30", 20 * time.Second: "20", 1200 * time.Millisecond: "2", 0: "1", -time.Hour: "1",
	} {
		rec := recorded(&idem.InProgressError{RetryAfter: lease})
		if got := rec.Header().Get("Retry-After"); got != want || rec.Code != 409 {
			t.Errorf("%s left: %d with Retry-After %s, want 409 with %s", lease, rec.Code, got, want)
		}
	}
}

func TestHandler_BodyOverTheLimitIs413BeforeAnyClaim(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{MaxRequest: 1000}, created(&a))
	large := strings.Repeat("x", 1001)
	a.post("k", large).wantProblem(t, 413, idemhttp.TypeBodyTooLarge)
	got, err := a.tryReader("POST", "/orders", "k", io.MultiReader(strings.NewReader(large))) // in chunks
	if err != nil {
		t.Fatal(err)
	}
	got.wantProblem(t, 413, idemhttp.TypeBodyTooLarge)
	a.post("k", strings.Repeat("x", 1000)).want(t, 201, false) // so the key was free, and for another body
	a.wantEffects(1)
	limit := serve(t, idemhttp.Config{}, created(&a))
	limit.post("k", strings.Repeat("x", 1<<20+1)).wantProblem(t, 413, idemhttp.TypeBodyTooLarge)
}

func TestHandler_ReplyOverTheLimitComesWholeAndLeavesATombstone(t *testing.T) {
	t.Parallel()
	const limit = 5000
	var a *api
	a = serveStore(t, pgtest.Pool(t), idem.Config{MaxBody: limit}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "large")
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, strings.Repeat("x", size))
	})
	if got := a.send("POST", "/orders?size=5000", "fits", "{}"); got.status != 201 || len(got.body) != limit {
		t.Errorf("status %d, %d bytes", got.status, len(got.body))
	}
	if got := a.send("POST", "/orders?size=5000", "fits", "{}"); !got.replayed() || len(got.body) != limit {
		t.Errorf("replay of %d bytes, %t", len(got.body), got.replayed())
	}
	if got := a.send("POST", "/orders?size=5001", "large", "{}"); got.status != 201 || len(got.body) != limit+1 {
		t.Errorf("status %d, %d bytes: want the reply whole", got.status, len(got.body))
	}
	got := a.send("POST", "/orders?size=5001", "large", "{}")
	got.wantProblem(t, 409, idemhttp.TypeReplyNotKept)
	if got.header.Get("Retry-After") != "" || !got.replayed() {
		t.Errorf("headers are %v, want Idempotent-Replayed and no Retry-After", got.header)
	}
	if !strings.Contains(got.body, `"original_status":201`) || !strings.Contains(got.body, `"original_size":5001`) {
		t.Errorf("%s doesn't tell of the reply", got.body)
	}
	a.wantEffects(2)
}

func TestHandler_DatabaseDownIs503WithRetryAfter(t *testing.T) {
	t.Parallel()
	ran := false
	a := serve(t, idemhttp.Config{}, nil)
	nowhere := pgtest.Connect(t, "postgres://127.0.0.1:1/nowhere?connect_timeout=2")
	store, err := idem.New(nowhere, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Config{Keys: idemhttp.Required, Scope: a.scope})
	if err != nil {
		t.Fatal(err)
	}
	a.listen(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })))
	got := a.post("k", "{}")
	got.wantProblem(t, 503, idemhttp.TypeUnavailable)
	if got.header.Get("Retry-After") != "5" || ran {
		t.Errorf("Retry-After %q, ran %t", got.header.Get("Retry-After"), ran)
	}
}

func TestHandler_AFaultOfTheServiceIs500(t *testing.T) {
	t.Parallel()
	for what, cfg := range map[string]idemhttp.Config{
		"Scope fails":     {Scope: func(*http.Request) (idem.Scope, error) { return "", errors.New("secret") }},
		"Scope is empty":  {Scope: func(*http.Request) (idem.Scope, error) { return "", nil }},
		"Operation is ''": {Operation: func(*http.Request) string { return "" }},
	} {
		var a *api
		a = serve(t, cfg, created(&a))
		got := a.post("k", "{}")
		got.wantProblem(t, 500, idemhttp.TypeInternal)
		if strings.Contains(got.body, "secret") {
			t.Errorf("%s: the client is told %s", what, got.body)
		}
		a.wantEffects(0)
	}
}
