package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A client that is stopped in a transaction of its attempt doesn't keep the key for ever:
// the server ends it after ten leases, a minute at least, or sooner where it is told to.
func TestAttempt_LimitsTheSilenceOfItsTransactions(t *testing.T) {
	t.Parallel()
	const name = "idle_in_transaction_session_timeout"
	for _, c := range []struct {
		set   string
		lease time.Duration
		want  string
	}{
		{"0", 20 * time.Second, "200s"}, {"1h", 20 * time.Second, "200s"}, {"0", time.Second, "1min"}, {"5s", 20 * time.Second, "5s"},
	} {
		s := holder(t, poolWith(t, pgtest.Direct(t, pgtest.URL(t)), setting(name, c.set)), idem.Config{Lease: c.lease})
		a := claim(t, s, newKey(t))
		limited := func(what string) func(tx pgx.Tx) error {
			return func(tx pgx.Tx) error {
				var got string
				err := tx.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got)
				if got != c.want {
					t.Errorf("%s of a lease of %s, where it is %s: %s, want %s", what, c.lease, c.set, got, c.want)
				}
				return err
			}
		}
		_, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return nil, limited("Step")(tx) })
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Finish(t.Context(), created, limited("Finish")); err != nil {
			t.Fatal(err)
		}
	}
}

// What an attempt's work knows is its Context, which ends when it is released.
func TestRelease_IsNotEndedByTheEndOfItsOwnContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := holder(t, pool, idem.Config{})
	for range 20 { // the end comes in its own time
		key := newKey(t)
		a := claim(t, s, key)
		work, cancel := a.Context(t.Context())
		if err := a.Release(work); err != nil {
			t.Fatal(err)
		}
		cancel()
		if r := rowOf(t, pool, key); r.State != 4 {
			t.Fatalf("the row is %+v, want it released", r)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		a = claim(t, s, key)
		wantErr(t, a.Release(ended), context.Canceled) // the caller's own word counts
	}
}

// A Context that its attempt has ended doesn't tell when its caller has gone: a Release
// that gets no connection waits for as long as one that cleans up.
func TestRelease_UnderItsOwnContextIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := idem.New(new(pgxpool.Pool), idem.Config{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		a := idem.Granted(t.Context(), store, start)
		caller, leave := context.WithCancel(t.Context())
		work, cancel := a.Context(caller)
		defer cancel()
		rest, cancelRest := idem.Outliving(work)
		defer cancelRest()
		a.End()
		synctest.Wait()
		leave()
		select {
		case <-rest.Done():
		case <-time.After(time.Hour):
			t.Fatal("it waits for ever")
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it ends after %s, want 5 s", took)
		}
	})
}
