package idem_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Nothing is claimed as done that isn't, and nothing is done twice: whatever is lost,
// and at whichever step.
func TestLost_AtEachStep(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	released := &rowState{state: 4, expires: "1 h"}
	for _, step := range []struct {
		match     string
		lookFirst bool
		row       *rowState // on arrival
	}{
		{"KeyClaim", false, nil},
		{"KeyFinish", false, nil},
		{"KeyClaim", false, released},
		{"KeyProbe", false, released}, // behind a claim that wasn't had
		{"KeyAwaitSteps", false, released},
		{"KeyProbe", true, nil},
		{"KeyClaim", true, nil},
		{"KeyFinish", true, nil},
	} {
		for _, lose := range []bool{false, true} {
			pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2, readCommitted)
			s, effects, key, calls := store(t, pool, idem.Config{}), newLedger(t, direct), newKey(t), 0
			if step.row != nil {
				step.row.put(t, direct, key)
			}
			idem.LookFirst(s, step.lookFirst)
			reached := proxy.Next(faultproxy.Fault{Match: step.match, Lose: lose})
			got, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
				calls++
				return effects.write(key.Key, created, nil)(ctx, tx)
			})
			wantResult(t, got, err, created, false)
			if len(reached) == 0 {
				t.Errorf("%+v: this step was not taken", step)
			}
			effects.want(t, key.Key, 1)
			wantReplay(t, store(t, direct, idem.Config{}), key, created)
			want := 1
			if step.match == "KeyFinish" && lose {
				want = 2
			}
			if calls != want {
				t.Errorf("%+v, lost request = %t: ran %d times, want %d", step, lose, calls, want)
			}
		}
	}
}

// Who goes while an answer is awaited gets ctx's error at once, and leaves the key free
// as soon as the server has noticed.
func TestLost_CtxThatEndsAtEachStepOfTheClaim(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for _, match := range []string{"KeyClaim", "KeyProbe", "KeyAwaitSteps"} {
		for _, lose := range []bool{false, true} {
			pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 2, readCommitted)
			s, key := store(t, pool, idem.Config{}), newKey(t)
			rowState{state: 4, expires: "1 h"}.put(t, direct, key)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(func() { proxy.SetStall(false) })
			reached := proxy.Next(faultproxy.Fault{Match: match, Hold: true, Lose: lose})
			go func() { <-reached; cancel() }()
			_, err := s.Do(ctx, key, fp, nil, unreached(t))
			wantErr(t, err, context.Canceled)
			waitUntil(t, "the key's freedom", func() bool {
				proxy.SetStall(false) // the reply, which makes it stall, may come late
				_, err := store(t, direct, idem.Config{}).Do(t.Context(), key, fp, nil, reply)
				return err == nil
			})
		}
	}
}

// A server without room has none for the next connection either.
func TestLost_NotRepeatedOnAFullDisk(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	exec(t, poolWith(t, pgtest.Owner(t, url)), `
		CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '53100'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON gatepost.idempotency_keys FOR EACH ROW EXECUTE FUNCTION public.full()`)
	var log logged
	s := store(t, pgtest.Connect(t, url), idem.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for _, lookFirst := range []bool{false, true} {
		idem.LookFirst(s, lookFirst)
		_, err := s.Do(t.Context(), newKey(t), fp, nil, unreached(t))
		wantErr(t, err, idem.ErrUnavailable)
		wantState(t, err, "53100")
		if text := log.String(); text != "" {
			t.Errorf("look first = %t: tried again: %s", lookFirst, text)
		}
	}
}
