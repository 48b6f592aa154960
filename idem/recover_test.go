package idem_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestBeginRecover_AsksOnlyBehindAPreviousAttempt(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{})
	never := func(context.Context) (idem.Recovery, error) { t.Error("asked"); return idem.Absent, nil }
	a, err := s.BeginRecover(t.Context(), key, fp, never)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.BeginRecover(t.Context(), key, fp, never)
	wantErr(t, err, idem.ErrInProgress)
	lapse(t, pool, key)
	_, err = s.BeginRecover(t.Context(), key, other, never)
	wantErr(t, err, idem.ErrMismatch)
	finish(t, a)
	b, err := s.BeginRecover(t.Context(), key, fp, never)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := b.Replay(); !ok || !reflect.DeepEqual(got, answer) {
		t.Errorf("replay %#v, %t", got, ok)
	}
}

func TestBeginRecover_WantsRecoverBeforeItIsNeeded(t *testing.T) {
	t.Parallel()
	_, err := holder(t, pgtest.Pool(t), idem.Config{}).BeginRecover(t.Context(), newKey(t), fp, nil)
	wantErr(t, err, idem.ErrInvalidConfig)
}

func TestBeginRecover_DoneIsStoredAndReplayed(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, leave := range map[string]func(*idem.Attempt){
		"lapsed":   func(*idem.Attempt) {},
		"released": func(a *idem.Attempt) { release(t, a) },
	} {
		key, s := newKey(t), holder(t, pool, idem.Config{})
		leave(claim(t, s, key))
		if what == "lapsed" {
			lapse(t, pool, key)
		}
		for range 2 {
			a, err := s.BeginRecover(t.Context(), key, fp, func(context.Context) (idem.Recovery, error) { return idem.Done(answer), nil })
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := a.Replay(); !ok || !reflect.DeepEqual(got, answer) || a.Err() == nil {
				t.Errorf("%s: replay %#v, %t, Err %v", what, got, ok, a.Err())
			}
		}
		if r := rowOf(t, pool, key); r.State != 2 || r.AttemptNo != 2 {
			t.Errorf("%s: row %+v", what, r)
		}
	}
}

// What belongs to the effect in this database is there with the reply, or neither is.
func TestBeginRecover_DoneWithWritesWhatBelongsToIt(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	broken := errors.New("broken")
	s := holder(t, pool, idem.Config{})
	claim(t, s, key)
	for _, end := range []error{broken, nil} {
		lapse(t, pool, key)
		a, err := s.BeginRecover(t.Context(), key, fp, func(ctx context.Context) (idem.Recovery, error) {
			return idem.DoneWith(answer, func(tx pgx.Tx) error { return errors.Join(insert(tx), ctx.Err(), end) }), nil
		})
		if end != nil {
			wantErr(t, err, end)
			if r := rowOf(t, pool, key); r.State != 1 || count() != 0 {
				t.Errorf("row %+v and %d effects after fn's error", r, count())
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := a.Replay(); !ok || !reflect.DeepEqual(got, answer) || count() != 1 {
			t.Errorf("replay %#v, %t; %d effects", got, ok, count())
		}
	}
}

// An attempt that was taken over while it asked writes nothing.
func TestBeginRecover_DoneWithOfAStaleAttemptIsFenced(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	claim(t, holder(t, pool, idem.Config{}), key)
	lapse(t, pool, key)
	_, err := holder(t, pool, idem.Config{}).BeginRecover(t.Context(), key, fp, func(context.Context) (idem.Recovery, error) {
		lapse(t, pool, key)
		claim(t, holder(t, pool, idem.Config{}), key)
		return idem.DoneWith(answer, insert), nil
	})
	wantErr(t, err, idem.ErrFenced)
	if count() != 0 {
		t.Errorf("%d effects of a stale attempt", count())
	}
}

func TestBeginRecover_AbsentGoesOn(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{})
	claim(t, s, key)
	lapse(t, pool, key)
	a, err := s.BeginRecover(t.Context(), key, fp, func(ctx context.Context) (idem.Recovery, error) {
		if got := begins(t, s, key, fp); got != running {
			t.Errorf("while it is being recovered: %s, want %s", got, running)
		}
		return idem.Absent, ctx.Err()
	})
	if err != nil || !a.Previous() {
		t.Fatal(a, err)
	}
	finish(t, a)
}

// What nobody knows stays in progress, for everybody to see, and runs for nobody.
func TestBeginRecover_UnknownStaysInProgress(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	broken := errors.New("broken")
	s := holder(t, pool, idem.Config{})
	claim(t, s, key)
	for what, recovery := range map[string]func(context.Context) (idem.Recovery, error){
		"unknown":        func(context.Context) (idem.Recovery, error) { return idem.Unknown, nil },
		"zero":           func(context.Context) (idem.Recovery, error) { return idem.Recovery{}, nil },
		"error":          func(context.Context) (idem.Recovery, error) { return idem.Absent, broken },
		"error and done": func(context.Context) (idem.Recovery, error) { return idem.Done(answer), broken },
		"panic":          func(context.Context) (idem.Recovery, error) { panic(broken) },
	} {
		lapse(t, pool, key)
		err := recovering(t, s, key, recovery)
		if what == "panic" || what == "error" || what == "error and done" {
			wantErr(t, err, broken)
		}
		if progress, ok := errors.AsType[*idem.InProgressError](err); what != "panic" && (!ok || progress.RetryAfter < 50*time.Second || progress.RetryAfter > time.Minute) {
			t.Errorf("%s: %v", what, err)
		}
		if got := begins(t, s, key, fp); got != running {
			t.Errorf("%s: %s behind it, want %s", what, got, running)
		}
	}
}

// Who is told to come back earlier finds the lease of whoever asked still running.
func TestBeginRecover_TellsWhenItsLeaseLapses(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{Lease: time.Hour})
	claim(t, s, key)
	lapse(t, pool, key)
	_, err := s.BeginRecover(t.Context(), key, fp, func(context.Context) (idem.Recovery, error) { return idem.Unknown, nil })
	left := rowOf(t, pool, key).LeaseLeft
	progress, ok := errors.AsType[*idem.InProgressError](err)
	if !ok || (progress.RetryAfter-left).Abs() > time.Minute || left < 50*time.Minute {
		t.Errorf("%v, of a lease that has %s left", err, left)
	}
}

// recovering returns what BeginRecover returns, or panics with.
func recovering(t *testing.T, s *idem.Store, key idem.Key, recovery func(context.Context) (idem.Recovery, error)) (err error) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			err, _ = p.(error)
		}
	}()
	_, err = s.BeginRecover(t.Context(), key, fp, recovery)
	return err
}

// The claim that is given up isn't kept alive.
func TestBeginRecover_UnknownLapses(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{Lease: short}) // which a busy machine renews
	claim(t, holder(t, pool, idem.Config{}), key)
	lapse(t, pool, key)
	_, err := s.BeginRecover(t.Context(), key, fp, func(context.Context) (idem.Recovery, error) { return idem.Unknown, nil })
	wantErr(t, err, idem.ErrInProgress)
	waitUntil(t, "the lapse", func() bool { return rowOf(t, pool, key).LeaseLeft < 0 })
}

// Whoever looks at the peer is told when the key is no longer its own, and its
// answer doesn't count then.
func TestBeginRecover_EndsWithItsClaim(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	claim(t, holder(t, pool, idem.Config{}), key)
	lapse(t, pool, key)
	s := holder(t, pool, idem.Config{Lease: 3 * time.Second})
	_, err := s.BeginRecover(t.Context(), key, fp, func(ctx context.Context) (idem.Recovery, error) {
		lapse(t, pool, key)
		claim(t, holder(t, pool, idem.Config{}), key)
		soon(t, "the end of ctx", ctx.Done())
		wantErr(t, context.Cause(ctx), idem.ErrFenced)
		return idem.Absent, nil
	})
	wantErr(t, err, idem.ErrFenced)
	wantErr(t, err, idem.ErrInProgress)
}
