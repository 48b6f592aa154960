package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var crowdKeys = flag.Int("crowd.keys", 10, "keys of the test of identical requests; 1000 for a long one")

// The long one: go test ./idem/idemhttp -run TestHandler_64Identical -crowd.keys=1000 -v
func TestHandler_64IdenticalRequestsHaveOneEffect(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	const requests = 64
	keys := *crowdKeys
	for k := range keys {
		var wg sync.WaitGroup
		var first, replays, busy atomic.Int32
		for range requests {
			wg.Go(func() {
				got, err := a.try("POST", "/orders", fmt.Sprint("k", k), "{}")
				switch {
				case err != nil:
					t.Error(err)
				case got.status == 201 && got.body == "created" && got.replayed():
					replays.Add(1)
				case got.status == 201 && got.body == "created":
					first.Add(1)
				case got.status == 409 && got.header.Get("Retry-After") != "":
					busy.Add(1)
				default:
					t.Errorf("status %d: %s", got.status, got.body)
				}
			})
		}
		wg.Wait()
		if first.Load() != 1 || replays.Load()+busy.Load() != requests-1 {
			t.Errorf("%d first replies, %d replays, %d in progress", first.Load(), replays.Load(), busy.Load())
		}
	}
	a.wantEffects(keys)
}

func TestHandler_APoolOfTwoServesFiftyDuplicates(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 2 })
	var a *api
	a = serveStore(t, pool, idem.Config{}, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "x")
		if _, err := idem.Tx(r.Context()).Exec(r.Context(), "SELECT pg_sleep(0.2)"); err != nil {
			panic(err)
		}
		fmt.Fprint(w, "x")
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			got, err := a.try("POST", "/orders", "k", "{}")
			if err != nil || got.status != 200 && got.status != 409 {
				t.Errorf("status %d, %v: %s", got.status, err, got.body)
			}
		})
	}
	wg.Wait()
	a.wantEffects(1)
}

// A serialization failure is the transaction's, and not the client's: the handler is
// run again, with the body, the headers and the writer of the first time.
func TestHandler_IsRunAgainWhenItsTransactionMetAnother(t *testing.T) {
	t.Parallel()
	for what, report := range map[string]func(http.ResponseWriter, error){
		"WriteError": idemhttp.WriteError,
		"http.Error": func(w http.ResponseWriter, _ error) { http.Error(w, "conflict", http.StatusInternalServerError) },
	} {
		var a *api
		runs := 0
		a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			runs++
			body, err := io.ReadAll(r.Body)
			if err != nil || string(body) != "body" || r.ContentLength != 4 || r.Header.Get("Mine") != "" || w.Header().Get("Mine") != "" {
				t.Errorf("%s, run %d: body %q, %v, headers %v and %v", what, runs, body, err, r.Header, w.Header())
			}
			r.Header.Set("Mine", "x")
			w.Header().Set("Mine", "x")
			a.effect(r, "x")
			fmt.Fprint(w, "run")
			if runs < 3 {
				_, err := idem.Tx(r.Context()).Exec(r.Context(), "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
				report(w, fmt.Errorf("%w: %w", idem.ErrRetryTx, err))
			}
		})
		got := a.post("k", "body")
		got.want(t, 200, false)
		if got.body != "run" || runs != 3 {
			t.Errorf("%s: body %q after %d runs, want one after 3", what, got.body, runs)
		}
		a.wantEffects(1)
	}
}

func TestHandler_RetriesThatAreSpentAre503(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, err := idem.Tx(r.Context()).Exec(r.Context(), "DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$")
		http.Error(w, err.Error(), http.StatusInternalServerError)
	})
	got := a.post("k", "{}")
	got.wantProblem(t, 503, idemhttp.TypeUnavailable)
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
}

func TestHandler_ASingleRunIsLeftToTheClientToRepeat(t *testing.T) {
	t.Parallel()
	var a *api
	runs := 0
	a = serve(t, idemhttp.Config{SingleRun: true}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "x")
		if runs++; runs == 1 {
			_, err := idem.Tx(r.Context()).Exec(r.Context(), "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	got := a.post("k", "{}")
	got.wantProblem(t, 503, idemhttp.TypeUnavailable)
	if runs != 1 || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d runs, Retry-After %q", runs, got.header.Get("Retry-After"))
	}
	a.post("k", "{}").want(t, 200, false)
	a.wantEffects(1)
}

func TestHandler_ASuccessOverABrokenTransactionIsNone(t *testing.T) {
	t.Parallel()
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = idem.Tx(r.Context()).Exec(r.Context(), "SELECT 1/0")
		fmt.Fprint(w, "fine")
	})
	a.post("k", "{}").wantProblem(t, 500, idemhttp.TypeInternal)
}

func TestHandler_AClientThatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	var a *api
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan bool)
	a = serve(t, idemhttp.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		a.effect(r, "x")
		leave()
		<-r.Context().Done()
		close(gone)
	})
	r, err := http.NewRequestWithContext(ctx, "POST", a.server.URL+"/orders", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	if resp, err := a.server.Client().Do(r); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %v", resp, err)
	}
	<-gone
	a.server.Close() // waits for the handler
	a.wantEffects(0)
	var n int
	if err := a.pool.QueryRow(t.Context(), "SELECT count(*) FROM gatepost.idempotency_keys WHERE scope = $1", a.tenant).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d keys, %v", n, err)
	}
}

// bodies are hard to keep.
var bodies = map[string][]byte{
	"none": nil, "zero bytes": make([]byte, 10), "NUL": []byte("a\x00b"), "an escaped NUL": []byte(`{"a":"\u0000"}`),
	"invalid UTF-8": {0xff, 0xfe, 0xc3, 0x28}, "half a pair": []byte(`"\ud800"`), "a backslash": []byte(`\x41\\`),
	"all bytes": allBytes(), "the limit": bytes.Repeat([]byte{0xff}, 1<<20),
}

func allBytes() (b []byte) {
	for c := range 256 {
		b = append(b, byte(c))
	}
	return b
}

func TestHandler_KeepsEachByteOfRequestAndReply(t *testing.T) {
	t.Parallel()
	for _, canonical := range []bool{false, true} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			if pgtest.Pooled() && mode == pgx.QueryExecModeCacheStatement {
				continue // pgx itself needs a session for it
			}
			pool := poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			a := serveStore(t, pool, idem.Config{}, idemhttp.Config{CanonicalJSON: canonical}, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(w, r.Body); err != nil {
					panic(err)
				}
			})
			for what, body := range bodies {
				for _, replayed := range []bool{false, true} {
					got := a.post(strings.ReplaceAll(what, " ", "-"), string(body))
					got.want(t, 200, replayed)
					if got.body != string(body) {
						t.Errorf("%s, %s, replayed %t: %d bytes differ from the %d sent", mode, what, replayed, len(got.body), len(body))
					}
				}
			}
		}
	}
}

func TestHandler_RefusesABodyThatWasReadBefore(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	inner := a.server.Config.Handler
	a.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		inner.ServeHTTP(w, r)
	}))
	a.post("k", "a=1", "Content-Type", "application/x-www-form-urlencoded").wantProblem(t, 500, idemhttp.TypeInternal)
	inChunks := struct{ io.Reader }{strings.NewReader("a=1")} // its length can't be told
	got, err := a.tryReader("POST", "/orders", "k", inChunks, "Content-Type", "application/x-www-form-urlencoded")
	if err != nil {
		t.Fatal(err)
	}
	got.wantProblem(t, 500, idemhttp.TypeInternal)
	a.post("k", "", "Content-Type", "application/x-www-form-urlencoded").want(t, 201, false)
}

// A body that ends early is not the request that the client meant.
func TestHandler_RefusesABodyThatIsNotWhole(t *testing.T) {
	t.Parallel()
	var a *api
	a = serve(t, idemhttp.Config{}, created(&a))
	inner := a.server.Config.Handler
	a.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), &broken{}))
		inner.ServeHTTP(w, r)
	}))
	a.post("k", "{}").wantProblem(t, 400, idemhttp.TypeBodyUnreadable)
	a.wantEffects(0)
}

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A COMMIT whose backend was killed is resolved: the client never gets two effects.
func TestHandler_AKilledBackendIsTriedAgainOrToldToBe(t *testing.T) {
	t.Parallel()
	var a *api
	kills := 0
	a = serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		a.effect(r, "x")
		if kills++; kills == 1 {
			if _, err := a.pool.Exec(r.Context(), "SELECT pg_terminate_backend($1)", pgtest.Backend(t, idem.Tx(r.Context()))); err != nil {
				t.Error(err)
			}
		}
		fmt.Fprint(w, "x")
	})
	got := a.post("k", "{}")
	for deadline := time.Now().Add(time.Minute); got.status == 503 && time.Now().Before(deadline); {
		got = a.post("k", "{}")
	}
	got.want(t, 200, false)
	a.wantEffects(1)
}
