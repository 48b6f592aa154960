package idemhttp_test

import (
	"bufio"
	"context"
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
)

func TestStreaming_ReachesTheClientWhileItIsMadeAndIsReplayed(t *testing.T) {
	t.Parallel()
	goOn := make(chan bool)
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if idem.Tx(r.Context()) != nil || idemhttp.Attempt(r.Context()) == nil {
			t.Error("it runs in a transaction, or not under a claim")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Set-Cookie", "a=b")
		fmt.Fprintln(w, "first")
		if err := http.NewResponseController(&wrapped{w}).Flush(); err != nil {
			t.Error(err)
		}
		<-goOn
		fmt.Fprintln(w, "second")
	})
	r, err := http.NewRequestWithContext(t.Context(), "POST", a.server.URL+"/orders", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/json")
	resp, err := a.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	got := a.post("k", "{}") // the first one has not ended
	got.wantProblem(t, 409, idemhttp.TypeInProgress)
	if after := got.header.Get("Retry-After"); after != "30" {
		t.Errorf("Retry-After is %q, want what is left of a minute, 30 at most", after)
	}
	a.post("k", "{other}").wantProblem(t, 422, idemhttp.TypeKeyReused)
	goOn <- true
	rest, err := io.ReadAll(lines)
	if string(rest) != "second\n" || err != nil || resp.Body.Close() != nil {
		t.Errorf("%q, %v", rest, err)
	}
	got = a.post("k", "{}")
	got.want(t, 200, true)
	if got.body != "first\nsecond\n" || got.header.Get("Content-Type") != "text/event-stream" || got.header.Get("Set-Cookie") != "" {
		t.Errorf("the replay is %+v", got)
	}
}

func TestStreaming_ReplyOverTheLimitLeavesATombstone(t *testing.T) {
	t.Parallel()
	const limit = 5000
	a := serveStreaming(t, idem.Config{MaxBody: limit}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.RawQuery)
		if err != nil {
			panic(err)
		}
		for range size {
			fmt.Fprint(w, "x")
		}
	})
	for _, replayed := range []bool{false, true} {
		got := a.send("POST", "/orders?5000", "fits", "{}")
		got.want(t, 200, replayed)
		if len(got.body) != limit {
			t.Errorf("%d bytes", len(got.body))
		}
	}
	if got := a.send("POST", "/orders?50000", "large", "{}"); len(got.body) != 10*limit {
		t.Errorf("%d bytes, want the reply whole", len(got.body))
	}
	a.send("POST", "/orders?50000", "large", "{}").wantProblem(t, 409, idemhttp.TypeReplyNotKept)
}

// Each way that is no outcome releases the key, and the next run is told.
func TestStreaming_WhatIsNotStoredRunsAgainAndIsTold(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]http.HandlerFunc{
		"5xx":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"429":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"passes": func(w http.ResponseWriter, _ *http.Request) { idemhttp.WriteError(w, idem.ErrInProgress) },
		"panic":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "half"); panic(http.ErrAbortHandler) },
		"hijack": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil || conn.Close() != nil {
				t.Error(err)
			}
		},
	} {
		var previous []bool
		a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			previous = append(previous, idemhttp.Attempt(r.Context()).Previous())
			if len(previous) == 1 {
				fail(w, r)
				return
			}
			fmt.Fprint(w, "done")
		})
		if got, err := a.try("POST", "/orders", "k", "{}"); err == nil && got.status == 200 {
			t.Errorf("%s: the client was told %+v", what, got)
		}
		for _, replayed := range []bool{false, true} {
			a.untilFree("k").want(t, 200, replayed)
		}
		if fmt.Sprint(previous) != "[false true]" {
			t.Errorf("%s: runs were told of previous ones %v", what, previous)
		}
	}
}

// untilFree asks until the claim of a handler whose client has gone is released.
func (a *api) untilFree(key string) reply {
	a.t.Helper()
	for a.t.Context().Err() == nil {
		if got := a.post(key, "{}"); got.status != http.StatusConflict {
			return got
		}
	}
	return reply{}
}

func TestStreaming_AClientThatIsGoneEndsTheWorkAndReleasesTheKey(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	runs := 0
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "x")
		if runs++; runs == 1 {
			leave()
			<-r.Context().Done()
		}
	})
	r, err := http.NewRequestWithContext(ctx, "POST", a.server.URL+"/orders", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/json")
	if resp, err := a.server.Client().Do(r); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %v", resp, err)
	}
	a.untilFree("k").want(t, 200, false)
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}

// A superseded attempt's client must not take what it got for the reply.
func TestStreaming_CutsTheConnectionOfAnAttemptThatWasTakenOver(t *testing.T) {
	t.Parallel()
	var a *api
	a = serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, err := a.pool.Exec(r.Context(), "UPDATE gatepost.idempotency_keys SET attempt = gen_random_uuid() WHERE scope = $1", a.tenant)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "done")
	})
	if got, err := a.try("POST", "/orders", "k", "{}"); err == nil {
		t.Errorf("the client got %+v", got)
	}
	if state := a.stored("state::text"); state != "1" {
		t.Errorf("the other attempt's row is in state %s, want it running", state)
	}
}

// Whoever goes on after another has the key would do it all twice.
func TestStreaming_TheWorkEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	var a *api
	why := make(chan error, 1)
	a = serveStreaming(t, idem.Config{Lease: 3 * time.Second}, idemhttp.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		_, err := a.pool.Exec(r.Context(), "UPDATE gatepost.idempotency_keys SET attempt = gen_random_uuid() WHERE scope = $1", a.tenant)
		if err != nil {
			t.Error(err)
		}
		select { // by the next heartbeat, or by the clock
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
		why <- context.Cause(r.Context())
	})
	if got, err := a.try("POST", "/orders", "k", "{}"); err == nil {
		t.Errorf("the client got %+v", got)
	}
	if err := <-why; !errors.Is(err, idem.ErrFenced) && !errors.Is(err, idem.ErrLapsed) {
		t.Errorf("the work's context ended by %v", err)
	}
}

// The fingerprint has read the body: the handler gets it again.
func TestStreaming_TheHandlerHasTheBody(t *testing.T) {
	t.Parallel()
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(body), err, r.ContentLength)
	})
	for _, replayed := range []bool{false, true} {
		got := a.post("k", "order")
		got.want(t, 200, replayed)
		if got.body != "order<nil> 5" {
			t.Errorf("it read %q", got.body)
		}
	}
}

func TestStreaming_LeavesFinishToAHandlerThatDoesIt(t *testing.T) {
	t.Parallel()
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		attempt := idemhttp.Attempt(r.Context())
		if err := attempt.Finish(r.Context(), idem.Reply{Status: 202, Body: []byte("mine")}, nil); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "live")
	})
	if got := a.post("k", "{}"); got.status != 202 || got.body != "live" {
		t.Errorf("%+v", got)
	}
	got := a.post("k", "{}")
	got.want(t, 202, true)
	if got.body != "mine" {
		t.Errorf("the replay is %q", got.body)
	}
}
