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
	"github.com/jackc/pgx/v5/pgxpool"
)

// notes is a table for effects in the database.
func notes(t *testing.T, pool *pgxpool.Pool) (insert func(pgx.Tx) error, count func() int) {
	t.Helper()
	name := table(t, pool, "note text").Sanitize()
	return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+name+" VALUES ('x')")
			return err
		}, func() int {
			return value[int](t, pool, "SELECT count(*) FROM "+name)
		}
}

var answer = idem.Reply{Status: 200, Header: map[string][]string{"A": {"\xff", ""}}, Body: []byte("\x00\xff{}")}

func TestFinish_StoresTheReplyAndTheEffectTogether(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	s := holder(t, pool, idem.Config{Retention: time.Hour})
	a := claim(t, s, key)
	if err := a.Finish(t.Context(), answer, insert); err != nil {
		t.Fatal(err)
	}
	soon(t, "the attempt's end", a.Done())
	wantErr(t, a.Err(), idem.ErrEnded)
	for range 2 {
		again, err := s.Begin(t.Context(), key, fp)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := again.Replay(); !ok || !reflect.DeepEqual(got, answer) {
			t.Errorf("replay of %#v (%t), want %#v", got, ok, answer)
		}
		wantErr(t, again.Finish(t.Context(), answer, insert), idem.ErrEnded)
		if err := again.Release(t.Context()); err != nil {
			t.Errorf("Release of a replay: %v", err)
		}
	}
	got, err := s.Do(t.Context(), key, fp, nil, nil)
	if err != nil || !got.Replayed || !reflect.DeepEqual(got.Reply, answer) {
		t.Errorf("Do: %#v, %v", got, err)
	}
	if r := rowOf(t, pool, key); count() != 1 || r.Left < time.Hour-time.Minute || r.Left > time.Hour+time.Minute {
		t.Errorf("%d effects, row %+v", count(), r)
	}
}

// The stale attempt is told so before its effects, and they don't stay.
func TestFinish_OfAStaleAttemptIsFenced(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insert, count := notes(t, pool)
	s := holder(t, pool, idem.Config{})
	for what, supersede := range map[string]func(idem.Key){
		"taken over":           func(k idem.Key) { lapse(t, pool, k); claim(t, holder(t, pool, idem.Config{}), k) },
		"taken over and done":  func(k idem.Key) { lapse(t, pool, k); finish(t, claim(t, holder(t, pool, idem.Config{}), k)) },
		"taken over, released": func(k idem.Key) { lapse(t, pool, k); release(t, claim(t, holder(t, pool, idem.Config{}), k)) },
		"forgotten":            func(k idem.Key) { lapse(t, pool, k); forget(t, s, k) },
		// Whoever counted attempts would meet the same number here.
		"forgotten, claimed anew": func(k idem.Key) { lapse(t, pool, k); forget(t, s, k); claim(t, holder(t, pool, idem.Config{}), k) },
	} {
		key := newKey(t)
		a := claim(t, s, key)
		supersede(key)
		before := rowOf(t, pool, key)
		for range 2 {
			wantErr(t, a.Finish(t.Context(), answer, insert), idem.ErrFenced)
		}
		wantErr(t, a.Err(), idem.ErrFenced)
		_, err := a.Step(t.Context(), "s", func(tx pgx.Tx) ([]byte, error) { return nil, insert(tx) })
		wantErr(t, err, idem.ErrFenced)
		wantErr(t, a.Release(t.Context()), idem.ErrFenced)
		if after := rowOf(t, pool, key); after.Attempt != before.Attempt || after.State != before.State || count() != 0 {
			t.Errorf("%s: %d effects, row %+v after %+v", what, count(), after, before)
		}
	}
}

func finish(t *testing.T, a *idem.Attempt) {
	t.Helper()
	if err := a.Finish(t.Context(), answer, nil); err != nil {
		t.Fatalf("Finish: %v", err)
	}
}

func release(t *testing.T, a *idem.Attempt) {
	t.Helper()
	if err := a.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func forget(t *testing.T, s *idem.Store, key idem.Key) {
	t.Helper()
	if err := s.Forget(t.Context(), key); err != nil {
		t.Fatalf("Forget: %v", err)
	}
}

func TestFinish_IsForALapsedAttemptThatNobodyTookOver(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	a := claim(t, holder(t, pool, idem.Config{Lease: 300 * time.Millisecond}), key)
	lapse(t, pool, key)
	soon(t, "loss", a.Done())
	wantErr(t, a.Err(), idem.ErrLapsed)
	if err := a.Finish(t.Context(), answer, insert); err != nil || count() != 1 {
		t.Errorf("Finish: %v, %d effects", err, count())
	}
	wantErr(t, a.Finish(t.Context(), answer, insert), idem.ErrEnded)
}

func TestFinish_TwiceRunsOnce(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { errs <- a.Finish(t.Context(), answer, insert) }()
	}
	finished := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			finished++
		} else {
			wantErr(t, err, idem.ErrEnded)
		}
	}
	if finished != 1 || count() != 1 {
		t.Errorf("%d times finished, %d effects", finished, count())
	}
}

func TestFinish_LeavesTheAttemptWhenItsFunctionFails(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	insert, count := notes(t, pool)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	broken := errors.New("broken")
	for what, fn := range map[string]func(pgx.Tx) error{
		"error":     func(tx pgx.Tx) error { return errors.Join(insert(tx), broken) },
		"no rows":   func(tx pgx.Tx) error { return errors.Join(insert(tx), broken, pgx.ErrNoRows) },
		"final":     func(tx pgx.Tx) error { return errors.Join(insert(tx), broken, idem.Final(answer)) },
		"swallowed": func(tx pgx.Tx) error { _, _ = tx.Exec(t.Context(), "SELECT 1/0"); return nil },
		"commit":    func(tx pgx.Tx) error { return errors.Join(insert(tx), tx.Commit(t.Context()), broken) },
		"by hand":   func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), "ROLLBACK"); return err },
	} {
		if err := a.Finish(t.Context(), answer, fn); err == nil || (what != "swallowed" && what != "by hand" && !errors.Is(err, broken)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	func() {
		defer func() {
			if got := recover(); got != broken { //nolint:errorlint // the very value
				t.Errorf("panic with %v", got)
			}
		}()
		_ = a.Finish(t.Context(), answer, func(tx pgx.Tx) error { _ = insert(tx); panic(broken) })
	}()
	if r := rowOf(t, pool, key); count() != 0 || r.State != 1 || a.Err() != nil {
		t.Fatalf("%d effects, row %+v, Err %v", count(), r, a.Err())
	}
	if err := a.Finish(t.Context(), answer, insert); err != nil || count() != 1 {
		t.Errorf("Finish: %v, %d effects", err, count())
	}
}

func TestFinish_LeavesATombstoneForALargeBody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := holder(t, pool, idem.Config{MaxBody: 10})
	for size, kept := range map[int]bool{10: true, 11: false} {
		key := newKey(t)
		a := claim(t, s, key)
		if err := a.Finish(t.Context(), idem.Reply{Status: 201, Body: make([]byte, size)}, nil); err != nil {
			t.Fatal(err)
		}
		_, err := s.Begin(t.Context(), key, fp)
		if gone, ok := errors.AsType[*idem.ReplayUnavailableError](err); ok == kept || (ok && (gone.Size != 11 || gone.Status != 201)) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	err := claim(t, s, newKey(t)).Finish(t.Context(), idem.Reply{Status: 1 << 40}, nil)
	wantErr(t, err, idem.ErrInvalidReply)
}

// Nobody takes over while the last effects are being written, and their writer is
// not told that it lost: the row is locked, whatever the clock says.
func TestFinish_OutlivesItsLease(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{Lease: short}), key)
	err := a.Finish(t.Context(), answer, func(pgx.Tx) error {
		waitUntil(t, "the end of the lease", func() bool { return rowOf(t, pool, key).LeaseLeft < -200*time.Millisecond })
		if got := begins(t, holder(t, pool, idem.Config{}), key, fp); got != isBusy {
			t.Errorf("another attempt: %s, want %s", got, isBusy)
		}
		if a.Err() != nil {
			t.Errorf("lost: %v", a.Err())
		}
		return nil
	})
	if err != nil {
		t.Errorf("Finish: %v", err)
	}
}

// What was finished ended as finished, though its store was closed, or its lease was
// over, before that: nobody is told of a loss.
func TestFinish_ThatSucceedsIsNoLoss(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{})
	a := claim(t, s, key)
	err := a.Finish(t.Context(), answer, func(pgx.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, s.Close(ctx), context.Canceled) // it waits for the attempt
		return nil
	})
	if err != nil || !errors.Is(a.Err(), idem.ErrEnded) {
		t.Errorf("Finish: %v, Err: %v", err, a.Err())
	}
}

func TestRelease_LetsTheNextOneKnow(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{Retention: time.Hour})
	first := claim(t, s, key)
	for range 2 {
		release(t, first)
	}
	wantErr(t, first.Finish(t.Context(), answer, nil), idem.ErrEnded)
	_, err := first.Step(t.Context(), "s", nil)
	wantErr(t, err, idem.ErrEnded)
	if r := rowOf(t, pool, key); r.State != 4 || r.Left > time.Hour {
		t.Errorf("row %+v", r)
	}
	_, err = s.Begin(t.Context(), key, other)
	wantErr(t, err, idem.ErrMismatch)
	second := claim(t, s, key)
	if !second.Previous() || first.ExternalKey() != second.ExternalKey() {
		t.Errorf("Previous is %t, external keys %s and %s", second.Previous(), first.ExternalKey(), second.ExternalKey())
	}
	release(t, first) // of another's claim
	if r := rowOf(t, pool, key); r.State != 1 || r.AttemptNo != 2 {
		t.Errorf("row %+v", r)
	}
	finish(t, second)
	release(t, second)
	if r := rowOf(t, pool, key); r.State != 2 {
		t.Errorf("row %+v after Release behind Finish", r)
	}
}

// A Finish whose outcome was unknown may have been through.
func TestRelease_LeavesWhatIsDone(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{}), key)
	change(t, pool, key, "state = 2, lease_until = NULL, done_at = clock_timestamp()")
	release(t, a)
	if r := rowOf(t, pool, key); r.State != 2 {
		t.Errorf("row %+v", r)
	}
}

func TestExternalKey_IsTheKeysOwn(t *testing.T) {
	t.Parallel()
	s := holder(t, pgtest.Pool(t), idem.Config{})
	k := newKey(t)
	keys := []idem.Key{k, {Operation: k.Operation, Scope: "x", Key: k.Key}, {Operation: "x", Scope: k.Scope, Key: k.Key}}
	seen := map[string]bool{}
	for _, key := range keys {
		a := claim(t, s, key)
		if a.ExternalKey("refund") != key.ExternalKey("refund") {
			t.Error("the attempt's external key is not that of its key")
		}
		for _, external := range []string{a.ExternalKey(), a.ExternalKey("refund"), a.ExternalKey("")} {
			if seen[external] || len(external) != 64 {
				t.Errorf("external key %q, seen before: %t", external, seen[external])
			}
			seen[external] = true
		}
	}
}
