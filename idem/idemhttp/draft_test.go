package idemhttp_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// draftClient follows draft-ietf-httpapi-idempotency-key-header-07: one line with a
// structured-field string, unique to the request, the same request at each retry; 409
// is tried again as it is, 400 and 422 are not.
type draftClient struct {
	http *http.Client
	url  string
	// second is how long a second of Retry-After lasts.
	second time.Duration
	tries  int
}

var errGaveUp = errors.New("no answer")

// post returns the answer that the request has in the end.
func (c *draftClient) post(ctx context.Context, path, body string) (got reply, err error) {
	key := strconv.Quote(rand.Text())
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		c.tries++
		got, err = c.once(ctx, path, key, body)
		wait := c.second
		if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err == nil {
			wait = time.Duration(seconds) * c.second
		}
		switch {
		case err != nil: // no answer, or half of one: it may have been done
		case got.status == http.StatusConflict && wait > 0, got.status == http.StatusServiceUnavailable:
		default:
			return got, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
	return reply{}, errors.Join(errGaveUp, err)
}

func (c *draftClient) once(ctx context.Context, path, key, body string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header["Idempotency-Key"] = []string{key}
	r.GetBody = nil // net/http would try again by itself
	resp, err := c.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	text, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text)}, errors.Join(err, resp.Body.Close())
}

// losing loses some of the requests before h, and some of the replies after it.
func losing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fate := mathrand.IntN(6)
		if fate == 0 {
			panic(http.ErrAbortHandler)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if fate < 3 {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

func TestHandler_GivesADraftClientItsOneAnswerWhateverIsLost(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	var a *api
	a = serveStore(t, pgtest.Connect(t, database), idem.Config{}, idemhttp.Config{Strict: true}, func(w http.ResponseWriter, r *http.Request) {
		var seq int
		err := idem.Tx(r.Context()).QueryRow(r.Context(), "INSERT INTO "+a.table.Sanitize()+" (what) VALUES ('x') RETURNING seq").Scan(&seq)
		if err != nil {
			idemhttp.WriteError(w, fmt.Errorf("%w: %w", idem.ErrUnavailable, err))
			return
		}
		w.Header().Set("Location", fmt.Sprint("/orders/", seq))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, seq)
	})
	a.listen(losing(a.server.Config.Handler))

	stop := make(chan bool)
	var killer sync.WaitGroup
	killer.Go(func() { killBackends(t, a, stop) })
	const clients, each = 8, 12
	answers := make(chan reply, clients*each)
	var wg sync.WaitGroup
	var mu sync.Mutex
	tries := 0
	for range clients {
		wg.Go(func() {
			client := &draftClient{http: a.server.Client(), url: a.server.URL, second: 10 * time.Millisecond}
			for range each {
				got, err := client.post(t.Context(), "/orders", "{}")
				if err != nil || got.status != 201 || got.header.Get("Location") != "/orders/"+got.body {
					t.Errorf("%v: %+v", err, got)
				}
				answers <- got
			}
			mu.Lock()
			defer mu.Unlock()
			tries += client.tries
		})
	}
	wg.Wait()
	close(stop)
	killer.Wait()
	close(answers)
	seen := map[string]bool{}
	for got := range answers {
		if seen[got.body] {
			t.Errorf("two requests got the order %s", got.body)
		}
		seen[got.body] = true
	}
	a.pool = pgtest.Connect(t, pgtest.Direct(t, database)) // none of its connections is a dead one, nor a pooler's
	a.wantEffects(clients * each)
	t.Logf("%d requests took %d tries", clients*each, tries)
}

// killBackends ends a backend of the test's own database now and then.
func killBackends(t *testing.T, a *api, stop <-chan bool) {
	t.Helper()
	admin := pgtest.Connect(t, pgtest.URL(t))
	for {
		select {
		case <-stop:
			return
		case <-time.After(15 * time.Millisecond):
		}
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = '' ORDER BY random() LIMIT 1) AS one`,
			a.pool.Config().ConnConfig.Database)
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func TestHandler_TellsADraftClientWhatToCorrect(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{Strict: true}, created(&a))
	client := &draftClient{http: a.server.Client(), url: a.server.URL, second: time.Millisecond}
	for what, c := range map[string]struct {
		key    string
		status int
		title  string
	}{
		"a bare key": {"abc", 400, "Idempotency-Key is malformed"},
		"a new one":  {`"abc"`, 201, ""},
	} {
		got, err := client.once(t.Context(), "/orders", c.key, what)
		if err != nil || got.status != c.status || !strings.Contains(got.body, c.title) {
			t.Errorf("%s: %v, %+v", what, err, got)
		}
	}
	got, err := client.once(t.Context(), "/orders", `"abc"`, "another payload")
	if err != nil || got.status != 422 {
		t.Fatalf("%v, %+v", err, got)
	}
	var p struct{ Type, Title string }
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Title != "Idempotency-Key is already used" || !strings.HasPrefix(p.Type, "https://") {
		t.Errorf("%v: %s", err, got.body)
	}
	if got.header.Get("Content-Language") != "en" {
		t.Errorf("headers are %v", got.header)
	}
}
