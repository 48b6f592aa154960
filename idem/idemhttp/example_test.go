package idemhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A payment is made once, however often the client has to ask.
func Example() {
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()
	exampleTables(pool, "CREATE TABLE payments (id int GENERATED ALWAYS AS IDENTITY, amount text)")
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}
	once, err := idemhttp.New(store, idemhttp.Config{
		Keys:  idemhttp.Required,
		Scope: func(*http.Request) (idem.Scope, error) { return "account 17", nil }, // of who has logged in
	})
	if err != nil {
		panic(err)
	}
	pay := func(w http.ResponseWriter, r *http.Request) {
		amount, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		var id int
		err = idem.Tx(r.Context()).QueryRow(r.Context(), "INSERT INTO payments (amount) VALUES ($1) RETURNING id", amount).Scan(&id)
		if err != nil {
			http.Error(w, "try again", http.StatusInternalServerError) // rolled back, not stored
			return
		}
		w.Header().Set("Location", fmt.Sprint("/payments/", id))
		w.WriteHeader(http.StatusCreated)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once.Handler(http.HandlerFunc(pay)))

	ask := func(key, amount string) {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(amount))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %q replayed %q\n", w.Code, w.Header().Get("Location"), w.Header().Get("Idempotent-Replayed"))
	}
	ask(`"8e03978e"`, "100 EUR")
	ask(`"8e03978e"`, "100 EUR")
	ask(`"1b9d6bcd"`, "100 EUR")
	ask(`"8e03978e"`, "999 EUR")
	// Output:
	// 201 "/payments/1" replayed ""
	// 201 "/payments/1" replayed "true"
	// 201 "/payments/2" replayed ""
	// 422 "" replayed ""
}

// exampleTables makes an example's tables, and forgets what it did the last time.
func exampleTables(pool *pgxpool.Pool, create ...string) {
	forget := []string{"DROP TABLE IF EXISTS payments, notes", "DELETE FROM gatepost.idempotency_keys WHERE scope = 'account 17'"}
	for _, sql := range append(forget, create...) {
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			panic(err)
		}
	}
}

// A change of what was read, and not of what somebody else has written since.
func ExampleIfMatch() {
	pool := pgtest.ExamplePool()
	defer pool.Close()
	exampleTables(pool, "CREATE TABLE notes (id int PRIMARY KEY, text text, version bigint NOT NULL DEFAULT 1)",
		"INSERT INTO notes (id) VALUES (1)")

	mux := http.NewServeMux()
	mux.HandleFunc("PUT /notes/{id}", func(w http.ResponseWriter, r *http.Request) {
		match, err := idemhttp.ParseIfMatch(r.Header)
		if err != nil {
			idemhttp.WriteError(w, err) // 428, 400
			return
		}
		version, err := match.CompareAndSet(r.Context(), pool, idem.Update{
			Table: pgx.Identifier{"public", "notes"},
			Key:   map[string]any{"id": r.PathValue("id")},
			Set:   map[string]any{"text": r.FormValue("text")},
		})
		if err != nil {
			idemhttp.WriteError(w, err) // 412, 404
			return
		}
		w.Header().Set("ETag", idemhttp.ETag(version))
		w.WriteHeader(http.StatusNoContent)
	})

	for _, tag := range []string{`"1"`, `"1"`, "*", `W/"3"`} {
		r := httptest.NewRequest(http.MethodPut, "/notes/1?text=hello", nil)
		r.Header.Set("If-Match", tag)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("ETag"))
	}
	// Output:
	// 204 "\"2\""
	// 412 "\"2\""
	// 204 "\"3\""
	// 412 ""
}

// A charge at another company: its key there is the same at each try, so that it is
// made once although nobody may live to say so.
func ExampleMiddleware_Streaming() {
	pool := pgtest.ExamplePool()
	defer pool.Close()
	exampleTables(pool)
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}
	once, err := idemhttp.New(store, idemhttp.Config{
		Keys:  idemhttp.Required,
		Scope: func(*http.Request) (idem.Scope, error) { return "account 17", nil },
	})
	if err != nil {
		panic(err)
	}
	charge := func(w http.ResponseWriter, r *http.Request) {
		attempt := idemhttp.Attempt(r.Context())
		fmt.Println("charge under a key of", len(attempt.ExternalKey()), "characters; somebody was here:", attempt.Previous())
		if !attempt.Previous() {
			w.WriteHeader(http.StatusBadGateway) // no answer: released, and not stored
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	h := once.Streaming(http.HandlerFunc(charge))
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("100 EUR"))
		r.Header.Set("Idempotency-Key", `"5f0c27d9"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// charge under a key of 64 characters; somebody was here: false
	// 502
	// charge under a key of 64 characters; somebody was here: true
	// 201
	// 201
}
