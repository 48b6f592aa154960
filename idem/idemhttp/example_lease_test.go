package idemhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// A charge at another company that may be lost on the way: whoever comes next asks
// there what became of it before anything is charged.
func ExampleMiddleware_Read() {
	pool := pgtest.ExamplePool()
	defer pool.Close()
	exampleTables(pool)
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}
	once, err := idemhttp.New(store, idemhttp.Config{
		Keys:      idemhttp.Required,
		Scope:     func(*http.Request) (idem.Scope, error) { return "account 17", nil },
		Operation: func(*http.Request) string { return "charge" },
	})
	if err != nil {
		panic(err)
	}
	charged := map[string]string{} // at the other company, by our key there
	reply := func(amount string) idem.Reply { return idem.Reply{Status: http.StatusCreated, Body: []byte(amount)} }

	pay := func(w http.ResponseWriter, r *http.Request) {
		req, err := once.Read(w, r)
		if err != nil {
			idemhttp.WriteError(w, err)
			return
		}
		attempt, err := store.BeginRecover(r.Context(), req.Key, req.Fingerprint, func(context.Context) (idem.Recovery, error) {
			if amount, found := charged[req.Key.ExternalKey()]; found {
				return idem.Done(reply(amount)), nil
			}
			return idem.Absent, nil
		})
		if err != nil {
			idemhttp.WriteError(w, err)
			return
		}
		defer func() { _ = attempt.Release(context.WithoutCancel(r.Context())) }()
		if stored, ok := attempt.Replay(); ok {
			idemhttp.WriteResult(w, idem.Result{Reply: stored, Replayed: true})
			return
		}
		fmt.Println("charge", string(req.Body))
		charged[attempt.ExternalKey()] = string(req.Body)
		if len(charged) == 1 {
			idemhttp.WriteError(w, context.DeadlineExceeded) // the answer was lost
			return
		}
		panic("charged twice")
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("100 EUR"))
		r.Header.Set("Idempotency-Key", `"9c1e52aa"`)
		w := httptest.NewRecorder()
		pay(w, r)
		fmt.Printf("%d, replayed %q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// charge 100 EUR
	// 503, replayed ""
	// 201, replayed "true"
}
