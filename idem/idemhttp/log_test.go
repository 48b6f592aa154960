package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// logged is what a middleware tells its operator.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// want fails unless there is something of that level and with those words; nothing when
// level is empty. A key is never in it.
func (l *logged) want(t *testing.T, what, level string, words ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.String()
	if strings.Contains(text, "the-key") {
		t.Errorf("%s: the key is logged: %s", what, text)
	}
	if level == "" {
		if text != "" {
			t.Errorf("%s: logged %s", what, text)
		}
		return
	}
	for _, word := range append(words, "level="+level) {
		if !strings.Contains(text, word) {
			t.Errorf("%s: logged %q, want %s in it", what, text, word)
		}
	}
}

// What the client isn't told, the operator is; what is the client's own matter, nobody.
func TestHandler_TellsTheOperatorWhatItDoesNotTellTheClient(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	fails := func(err error) func(*http.Request) (idem.Scope, error) {
		return func(*http.Request) (idem.Scope, error) { return "", err }
	}
	for what, c := range map[string]struct {
		cfg    idemhttp.Config
		ctx    context.Context //nolint:containedctx // of the request
		status int
		level  string
	}{
		"a fault of the service": {idemhttp.Config{Scope: fails(errors.New("no tenant"))}, t.Context(), 500, "ERROR"},
		"trouble that passes":    {idemhttp.Config{Scope: fails(fmt.Errorf("no tenant: %w", idem.ErrUnavailable))}, t.Context(), 503, "WARN"},
		"superseded":             {idemhttp.Config{Scope: fails(fmt.Errorf("no tenant: %w", idem.ErrFenced))}, t.Context(), 409, "WARN"},
		"a mismatch":             {idemhttp.Config{Scope: fails(idem.ErrMismatch)}, t.Context(), 422, ""},
		"in progress":            {idemhttp.Config{Scope: fails(idem.ErrInProgress)}, t.Context(), 409, ""},
		"nobody is there":        {idemhttp.Config{Scope: fails(errors.New("no tenant"))}, gone, 500, ""},
	} {
		var log logged
		c.cfg.Logger = log.logger()
		a := serve(t, c.cfg, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
		request := httptest.NewRequestWithContext(c.ctx, http.MethodPost, "/orders", strings.NewReader("{}"))
		request.Header.Set("Idempotency-Key", "the-key")
		rec := httptest.NewRecorder()
		a.server.Config.Handler.ServeHTTP(rec, request)
		if rec.Code != c.status {
			t.Errorf("%s: status %d, want %d", what, rec.Code, c.status)
		}
		log.want(t, what, c.level, "no tenant", "POST /orders")
	}
}

func TestStreaming_TellsTheOperatorOfAReplyThatIsNotStored(t *testing.T) {
	t.Parallel()
	var log logged
	a := serveStreaming(t, idem.Config{}, idemhttp.Config{Logger: log.logger()}, func(_ http.ResponseWriter, r *http.Request) {
		if err := idemhttp.Attempt(r.Context()).Release(r.Context()); err != nil {
			t.Error(err)
		}
	})
	a.post("the-key", "{}") // released by the handler, which is its own affair
	log.want(t, "released", "")
	a = serveStreaming(t, idem.Config{}, idemhttp.Config{Logger: log.logger()}, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := a.pool.Exec(r.Context(), "UPDATE gatepost.idempotency_keys SET attempt = gen_random_uuid() WHERE scope = $1", a.tenant); err != nil {
			t.Error(err)
		}
	})
	_, _ = a.try("POST", "/orders", "the-key", "{}") // it is cut
	log.want(t, "superseded", "ERROR", "superseded", "POST /orders")
}
