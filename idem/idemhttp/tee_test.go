package idemhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// What is stored is what has gone out: the headers as they were with the status.
func TestStreaming_StoresTheHeadersThatWereSent(t *testing.T) {
	t.Parallel()
	for what, send := range map[string]func(http.ResponseWriter){
		"status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"body":   func(w http.ResponseWriter) { fmt.Fprint(w, "x") },
		"flush":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	} {
		a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/1")
			send(w)
			w.Header().Set("Location", "/2")
			w.Header().Set("Link", "</3>")
		})
		for _, replayed := range []bool{false, true} {
			got := a.post("k", "{}")
			if got.header.Get("Location") != "/1" || got.header.Get("Link") != "" || got.replayed() != replayed {
				t.Errorf("%s, replayed %t: %+v", what, replayed, got)
			}
		}
	}
}

// A handler that writes a body where there is none has made a reply all the same.
func TestStreaming_StoresAReplyThatMayHaveNoBody(t *testing.T) {
	t.Parallel()
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := fmt.Fprint(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("a body with 204: %v", err)
		}
	})
	a.post("k", "{}").want(t, 204, false)
	a.post("k", "{}").want(t, 204, true)
}

// hole is a writer whose second write fails, and only that.
type hole struct {
	http.ResponseWriter
	writes int
}

func (h *hole) Write(p []byte) (int, error) {
	if h.writes++; h.writes == 2 {
		return 0, errors.New("broken for a moment")
	}
	return h.ResponseWriter.Write(p)
}

// A reply with a hole in it is none to be replayed.
func TestStreaming_StoresNoReplyThatLacksAPart(t *testing.T) {
	t.Parallel()
	runs := 0
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		for _, part := range []string{"one ", "two ", "three"} {
			fmt.Fprint(w, part)
		}
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("{}"))
	request.Header.Set("Idempotency-Key", "k")
	request.Header.Set("Content-Type", "application/json")
	a.server.Config.Handler.ServeHTTP(&hole{ResponseWriter: httptest.NewRecorder()}, request)
	a.untilFree("k").want(t, 200, false)
	if got := a.post("k", "{}"); got.body != "one two three" || runs != 2 {
		t.Errorf("after %d runs the replay is %q", runs, got.body)
	}
}
