package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

func TestTryAcquire_SecondCallerLearnsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	first := client(t, pool, pglock.Config{Holder: "first", TTL: 10 * time.Second})
	second := client(t, pool, pglock.Config{Holder: "second"})

	l := acquire(t, first, name, nil)
	_, err := second.TryAcquire(t.Context(), name, nil)

	held, ok := errors.AsType[*pglock.HeldError](err)
	if !ok || !errors.Is(err, pglock.ErrHeld) {
		t.Fatalf("error is %v, want a *HeldError", err)
	}
	if held.Holder != "first" || held.Token != l.Token() || held.Fenced {
		t.Errorf("held = %+v, want first with token %d", held, l.Token())
	}
	if held.RetryAfter <= 0 || held.RetryAfter > 10*time.Second {
		t.Errorf("RetryAfter = %s, want up to 10 s", held.RetryAfter)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, second, name, nil); next.Token() <= l.Token() {
		t.Errorf("token %d after %d, want a higher one", next.Token(), l.Token())
	}
}

func TestInTx_CommitsAndRefusesTheStale(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	old := acquire(t, c, name, nil)
	if err := old.InTx(t.Context(), func(tx pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	expire(t, pool, name)
	now := acquire(t, c, name, nil)

	err := c.InTx(t.Context(), old.Sequencer(), func(tx pgx.Tx) error {
		t.Error("fn was called")
		return nil
	})
	wantErr(t, err, pglock.ErrFenced)
	fenced, _ := errors.AsType[*pglock.FencedError](err)
	if fenced.Current != now.Token() || fenced.Token != old.Token() {
		t.Errorf("fenced = %+v", fenced)
	}
	wantErr(t, err, pglock.ErrSuperseded)
}
