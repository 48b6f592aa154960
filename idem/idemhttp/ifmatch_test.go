package idemhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// document is a row with version 7.
func document(t *testing.T, db idem.DBTX) idem.Update {
	t.Helper()
	name := pgx.Identifier{"public", "d_" + pgtest.Name(t)[len(pgtest.Name(t))-10:]}
	for _, sql := range []string{"CREATE TABLE %s (id int PRIMARY KEY, body text, version bigint NOT NULL)", "INSERT INTO %s VALUES (1, 'old', 7)"} {
		if _, err := db.Exec(t.Context(), fmt.Sprintf(sql, name.Sanitize())); err != nil {
			t.Fatal(err)
		}
	}
	return idem.Update{Table: name, Key: map[string]any{"id": 1}, Set: map[string]any{"body": "new"}}
}

func ifMatch(t *testing.T, line string) idemhttp.IfMatch {
	t.Helper()
	m, err := idemhttp.ParseIfMatch(http.Header{"If-Match": {line}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestIfMatch_ChangesAVersionThatTheSenderAllows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, c := range []struct {
		line string
		want int64
		err  error
	}{
		{`"7"`, 8, nil},
		{`"8"`, 0, idem.ErrStale},
		{`"6", "9"`, 0, idem.ErrStale},
		{`"5", "6", "7", "8"`, 8, nil},
		{"*", 8, nil},
		{`W/"7"`, 0, idem.ErrStale},
		{`"x"`, 0, idem.ErrStale},
	} {
		u := document(t, pool)
		version, err := ifMatch(t, c.line).CompareAndSet(t.Context(), pool, u)
		if version != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: version %d, %v; want %d, %v", c.line, version, err, c.want, c.err)
		}
		u.Key = map[string]any{"id": 2}
		if _, err := ifMatch(t, "*").CompareAndSet(t.Context(), pool, u); !errors.Is(err, idem.ErrNotFound) {
			t.Errorf("error is %v, want ErrNotFound", err)
		}
	}
}

func TestIfMatch_AnyVersionIsRaisedByEach(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := document(t, pool)
	any := ifMatch(t, "*")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				_, err := any.CompareAndSet(t.Context(), pool, u)
				if err == nil {
					return
				}
				if !errors.Is(err, idem.ErrRetryTx) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	_, err := idem.CompareAndSet(t.Context(), pool, u, 0)
	if stale, ok := errors.AsType[*idem.StaleError](err); !ok || stale.Current != 15 {
		t.Errorf("%v, want version 15", err)
	}
}

func TestHandler_ChangesByIfMatchOnce(t *testing.T) {
	t.Parallel()
	var u idem.Update
	a := serve(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		u := u
		u.Key = map[string]any{"id": len(r.PathValue("id"))}
		match, err := idemhttp.ParseIfMatch(r.Header)
		var version int64
		if err == nil {
			version, err = match.CompareAndSet(r.Context(), idem.Tx(r.Context()), u)
		}
		if err != nil {
			idemhttp.WriteError(w, err)
			return
		}
		w.Header().Set("ETag", idemhttp.ETag(version))
		w.WriteHeader(http.StatusNoContent)
	})
	u = document(t, a.pool)
	a.send("PATCH", "/orders/1", "k0", "{}").wantProblem(t, 428, idemhttp.TypePreconditionRequired)
	a.send("PATCH", "/orders/1", "k1", "{}", "If-Match", "7").wantProblem(t, 400, idemhttp.TypePreconditionMalformed)
	a.send("PATCH", "/orders/22", "k2", "{}", "If-Match", "*").wantProblem(t, 404, idemhttp.TypeNotFound)
	a.send("PATCH", "/orders/1", "k3", "{}", "If-Match", `W/"7"`).wantProblem(t, 412, idemhttp.TypePreconditionFailed)
	for _, replayed := range []bool{false, true} { // also when the version has risen, by itself
		got := a.send("PATCH", "/orders/1", "k4", "{}", "If-Match", `"7"`)
		got.want(t, 204, replayed)
		if tag := got.header.Get("ETag"); tag != `"8"` {
			t.Errorf("ETag is %s", tag)
		}
	}
	for _, replayed := range []bool{false, true} {
		got := a.send("PATCH", "/orders/1", "k5", "{}", "If-Match", `"7"`)
		got.wantProblem(t, 412, idemhttp.TypePreconditionFailed)
		if tag := got.header.Get("ETag"); tag != `"8"` || got.replayed() != replayed {
			t.Errorf("ETag is %s, replayed %t", tag, got.replayed())
		}
	}
}
