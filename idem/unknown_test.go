package idem_test

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestBegin_LostReplyIsFoundAgain(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for _, previous := range []bool{false, true} {
		key := newKey(t)
		if previous {
			put(t, direct, key, "1, now() - interval '1 s', now() + interval '1 h', 1")
		}
		pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
		reached := proxy.Next(faultproxy.Fault{Match: "AttemptClaim"})
		a := claim(t, holder(t, pool, idem.Config{}), key)
		<-reached
		if a.Previous() != previous {
			t.Errorf("Previous is %t, want %t", a.Previous(), previous)
		}
		finish(t, a)
	}
}

func TestBegin_RequestThatNeverArrivedClaimsNothing(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	proxy.Next(faultproxy.Fault{Match: "AttemptClaim", Lose: true})
	s := holder(t, pool, idem.Config{})
	_, err := s.Begin(t.Context(), key, fp)
	wantErr(t, err, idem.ErrUnavailable)
	if a := claim(t, holder(t, direct, idem.Config{}), key); a.Previous() {
		t.Error("somebody was here")
	}
}

// No ghosts: what was granted to a caller that is gone is given back.
func TestBegin_CtxThatEndsInTheMiddleLeavesNoClaim(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	s := holder(t, pool, idem.Config{Lease: time.Hour})
	release(t, claim(t, s, newKey(t))) // warms the connection up
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached := proxy.Next(faultproxy.Fault{Match: "AttemptClaim", Hold: true})
	go func() {
		<-reached
		waitUntil(t, "the claim", func() bool { return rowOf(t, direct, key).State == 1 })
		cancel()
	}()
	_, err := s.Begin(ctx, key, fp)
	proxy.SetStall(false)
	wantErr(t, err, context.Canceled)
	waitUntil(t, "release of the claim", func() bool { return rowOf(t, direct, key).State == 4 })
}

func TestBegin_CtxThatEndsInABlackHoleReturnsAtOnce(t *testing.T) {
	t.Parallel()
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	s := holder(t, pool, idem.Config{})
	release(t, claim(t, s, newKey(t)))
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Begin(ctx, newKey(t), fp)
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("took %s", took)
	}
}

func TestBegin_FailsClosed(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2")
	s := holder(t, pool, idem.Config{})
	_, err := s.Begin(t.Context(), newKey(t), fp)
	wantErr(t, err, idem.ErrUnavailable)
	wantErr(t, s.Forget(t.Context(), newKey(t)), idem.ErrUnavailable)
	_, err = s.GC(t.Context())
	wantErr(t, err, idem.ErrUnavailable)
	_, err = s.Backlog(t.Context())
	wantErr(t, err, idem.ErrUnavailable)
	empty := holder(t, poolWith(t, pgtest.EmptyDatabase(t)), idem.Config{})
	_, err = empty.Begin(t.Context(), newKey(t), fp)
	wantErr(t, err, idem.ErrNotMigrated)
	_, err = empty.GC(t.Context())
	wantErr(t, err, idem.ErrNotMigrated)
}

// A COMMIT that was not answered, or never arrived, is told apart: the effect is
// there once, and the reply with it.
func TestFinish_UnknownCommitIsResolved(t *testing.T) {
	t.Parallel()
	direct := pgtest.ReadCommitted(t)
	for _, lose := range []bool{false, true} {
		for _, effect := range []bool{false, true} {
			key := newKey(t)
			insert, count := notes(t, direct)
			pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4, readCommitted)
			s := holder(t, pool, idem.Config{})
			a := claim(t, s, key)
			runs := 0
			fn := func(tx pgx.Tx) error { runs++; return insert(tx) }
			if !effect {
				fn = nil
			}
			reached := proxy.Next(faultproxy.Fault{Match: "KeyFinish", Lose: lose})
			if err := a.Finish(t.Context(), answer, fn); err != nil {
				t.Errorf("lose %t: Finish: %v", lose, err)
			}
			<-reached
			if effect && (count() != 1 || runs != map[bool]int{false: 1, true: 2}[lose]) {
				t.Errorf("lose %t: %d effects, %d runs", lose, count(), runs)
			}
			again, err := s.Begin(t.Context(), key, fp)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := again.Replay(); !reflect.DeepEqual(got, answer) {
				t.Errorf("lose %t: replay %#v", lose, got)
			}
		}
	}
}

func TestStep_UnknownCommitIsResolved(t *testing.T) {
	t.Parallel()
	direct := pgtest.ReadCommitted(t)
	for _, lose := range []bool{false, true} {
		key := newKey(t)
		insert, count := notes(t, direct)
		pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4, readCommitted)
		a := claim(t, holder(t, pool, idem.Config{}), key)
		reached := proxy.Next(faultproxy.Fault{Match: "StepStore", Lose: lose})
		runs := 0
		got, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { runs++; return []byte("x"), insert(tx) })
		<-reached
		if err != nil || string(got) != "x" || count() != 1 || steps(t, direct, key) != 1 || runs != map[bool]int{false: 1, true: 2}[lose] {
			t.Errorf("lose %t: %q, %v, %d effects, %d steps, %d runs", lose, got, err, count(), steps(t, direct, key), runs)
		}
	}
}

// slow is an effect whose COMMIT takes a while.
func slow(t *testing.T, pool *pgxpool.Pool) (insert func(pgx.Tx) error, count func() int) {
	t.Helper()
	name := table(t, pool, "note text").Sanitize()
	trigger := pgx.Identifier{"public", "f" + strings.ToLower(rand.Text())}.Sanitize()
	exec(t, pool, `CREATE FUNCTION `+trigger+`() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END'`)
	exec(t, pool, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON `+name+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+trigger+`()`)
	return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+name+" VALUES ('x')")
			return err
		}, func() int {
			return value[int](t, pool, "SELECT count(*) FROM "+name)
		}
}

// A COMMIT that is at work when the connection breaks is waited for, and not taken
// for one that was rolled back.
func TestUnknownCommit_ThatIsAtWorkIsWaitedFor(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	insert, count := slow(t, direct)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4, readCommitted)
	a := claim(t, holder(t, pool, idem.Config{}), newKey(t))
	runs := 0
	fn := func(tx pgx.Tx) error { runs++; return insert(tx) }

	proxy.Next(faultproxy.Fault{Match: "StepStore", Cut: true})
	_, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return nil, fn(tx) })
	if err != nil || count() != 1 || runs != 1 {
		t.Errorf("Step: %v, %d effects, %d runs", err, count(), runs)
	}
	proxy.Next(faultproxy.Fault{Match: "KeyFinish", Cut: true})
	if err := a.Finish(t.Context(), answer, fn); err != nil || count() != 2 || runs != 2 {
		t.Errorf("Finish: %v, %d effects, %d runs", err, count(), runs)
	}
}

// While the old transaction may still commit, nothing is decided.
func TestFinish_UnknownCommitOfASilentServerIsUnknown(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	err := a.Finish(t.Context(), answer, func(pgx.Tx) error {
		proxy.SetStall(true)
		return nil
	})
	wantErr(t, err, idem.ErrUnavailable)
	proxy.SetStall(false)
	if err := a.Finish(t.Context(), answer, nil); err != nil && !errors.Is(err, idem.ErrEnded) {
		t.Errorf("Finish again: %v", err)
	}
	if r := rowOf(t, direct, key); r.State != 2 {
		t.Errorf("row %+v", r)
	}
}

func TestRelease_LostReplyGivesTheKeyBack(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	for _, lose := range []bool{false, true} {
		key := newKey(t)
		pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
		a := claim(t, holder(t, pool, idem.Config{Lease: time.Hour}), key)
		reached := proxy.Next(faultproxy.Fault{Match: "AttemptRelease", Lose: lose})
		wantErr(t, a.Release(t.Context()), idem.ErrUnavailable)
		<-reached
		waitUntil(t, "the release", func() bool { return rowOf(t, direct, key).State == 4 })
	}
}

func TestHeartbeat_SurvivesLostReplies(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	a := claim(t, holder(t, pool, idem.Config{Lease: short}), key)
	for _, lose := range []bool{false, true} {
		<-proxy.Next(faultproxy.Fault{Match: "AttemptRenew", Lose: lose})
		renewed(t, direct, key, 2)
	}
	if a.Err() != nil {
		t.Errorf("attempt is lost: %v", a.Err())
	}
}

// A connection that went silent is replaced in time, each time.
func TestHeartbeat_SurvivesConnectionsThatGoSilent(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	a := claim(t, holder(t, pool, idem.Config{Lease: 9 * time.Second}), key) // a busy machine needs some of it for each connection
	for range 3 {
		<-proxy.Next(faultproxy.Fault{Match: "AttemptRenew", Delay: 9 * time.Second})
		trusted := a.Deadline() // a renewal whose answer is late extends it in the database alone
		waitUntil(t, "a renewal", func() bool { return a.Deadline().After(trusted) })
	}
	if a.Err() != nil {
		t.Errorf("attempt is lost: %v", a.Err())
	}
}

// And so it is with a renewal.
func TestHeartbeat_TrustCountsFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	const lease, margin = 6 * time.Second, 600 * time.Millisecond
	a := claim(t, holder(t, pool, idem.Config{Lease: lease}), key)
	claimed := a.Deadline()
	<-proxy.Next(faultproxy.Fault{Match: "AttemptRenew", Delay: margin + 200*time.Millisecond})
	waitUntil(t, "the answer", func() bool { return a.Deadline().After(claimed) })
	deadline, looked := a.Deadline(), time.Now()
	end := looked.Add(rowOf(t, direct, key).LeaseLeft + time.Since(looked)) // of the lease on the server, or later
	if deadline.After(end.Add(-margin)) {
		t.Errorf("trusted for %s longer than it may be", deadline.Sub(end.Add(-margin)))
	}
}

// The trust counts from when a request was sent: the server may have computed the
// end of the lease long before its answer arrives.
func TestDone_CountsFromWhenTheClaimWasSent(t *testing.T) {
	t.Parallel()
	direct, key := pgtest.Pool(t), newKey(t)
	pool, proxy := faultproxy.Pool(t, pgtest.URL(t), 4)
	const lease, margin = 6 * time.Second, 600 * time.Millisecond
	s := holder(t, pool, idem.Config{Lease: lease})
	release(t, claim(t, s, newKey(t))) // warms the connection up
	proxy.Next(faultproxy.Fault{Match: "AttemptClaim", Delay: margin + 200*time.Millisecond})
	a := claim(t, s, key)
	proxy.SetStall(true) // no renewal gives it more
	t.Cleanup(func() { proxy.SetStall(false) })
	deadline, looked := a.Deadline(), time.Now()
	end := looked.Add(rowOf(t, direct, key).LeaseLeft + time.Since(looked)) // of the lease on the server, or later
	if deadline.After(end.Add(-margin)) {
		t.Errorf("trusted for %s longer than it may be", deadline.Sub(end.Add(-margin)))
	}
	soon(t, "loss", a.Done())
}
