package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// postCharges sends a charge so many times at once, and returns the bodies, sorted.
func postCharges(p *cardProvider, key string, times int) []string {
	bodies := make([]string, times)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(`{"amount":5,"card":"x"}`))
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			p.routes().ServeHTTP(w, r)
			bodies[i] = fmt.Sprint(w.Code, w.Body)
		})
	}
	wg.Wait()
	slices.Sort(bodies)
	return slices.Compact(bodies)
}

func TestProvider_ChargesOnceAKeyUnlessItIgnoresThem(t *testing.T) {
	t.Parallel()
	silent := slog.New(slog.DiscardHandler)
	honours, ignores := newCardProvider(&ledger{}, false, silent), newCardProvider(&ledger{}, true, silent)
	if got := postCharges(honours, "a", 20); len(got) != 1 || len(honours.ledger.all()) != 1 {
		t.Errorf("%d charges: %v", len(honours.ledger.all()), got)
	}
	postCharges(honours, "", 3)
	postCharges(honours, "b", 3)
	if got := len(honours.ledger.all()); got != 5 {
		t.Errorf("%d charges of two keys and three without", got)
	}
	if got := postCharges(ignores, "a", 20); len(got) != 20 || len(ignores.ledger.all()) != 20 {
		t.Errorf("%d charges: %v", len(ignores.ledger.all()), got)
	}
}

func TestProvider_KnowsItsKeysAfterARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger")
	var answers []string
	for range 2 {
		l, err := openLedger(file)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, postCharges(newCardProvider(l, false, slog.New(slog.DiscardHandler)), "a", 1)...)
		if len(l.all()) != 1 {
			t.Errorf("charges are %v", l.all())
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
	if answers[0] != answers[1] {
		t.Errorf("answered %q and %q", answers[0], answers[1])
	}
}
