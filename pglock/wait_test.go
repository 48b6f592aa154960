package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

func TestAcquire_TakesOverWhenTheLeaseLapses(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{PollInterval: 10 * time.Millisecond})
	old := acquire(t, c, name, nil)
	got := make(chan *pglock.Lease, 1)
	go func() {
		l, err := c.Acquire(context.WithoutCancel(t.Context()), name, nil)
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		got <- l
	}()
	expire(t, pool, name)
	if l := <-got; l != nil && l.Token() <= old.Token() {
		t.Errorf("token %d after %d", l.Token(), old.Token())
	}
}

func TestAcquire_CtxThatEndsMatchesHeldAndTheCtx(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{Holder: "the first"})
	acquire(t, c, name, nil)
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why) // it tries once in that time, on a busy machine too
	defer cancel()
	_, err := c.Acquire(ctx, name, nil)
	for _, want := range []error{pglock.ErrHeld, context.DeadlineExceeded, why} {
		wantErr(t, err, want)
	}
	if held, ok := errors.AsType[*pglock.HeldError](err); !ok || held.Holder != "the first" {
		t.Errorf("error is %v, want the *HeldError in it", err)
	}
}

func TestAcquire_AfterCloseIsErrClosed(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.TryAcquire(t.Context(), name, nil)
	wantErr(t, err, pglock.ErrClosed)
	_, err = c.Acquire(t.Context(), name, nil)
	wantErr(t, err, pglock.ErrClosed)
	wantErr(t, c.Do(t.Context(), name, nil, func(context.Context, *pglock.Lease) error { return nil }), pglock.ErrClosed)
}

func TestAcquire_WaitBoundsTheWaitAndNotTheWork(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	l := acquire(t, c, name, nil)
	for _, wait := range []time.Duration{pglock.NoWait, 30 * time.Millisecond} {
		opts := &pglock.AcquireOptions{Wait: wait}
		_, err := c.Acquire(t.Context(), name, opts)
		wantErr(t, err, pglock.ErrHeld)
		wantErr(t, c.Do(t.Context(), name, opts, untilCancelled(nil)), pglock.ErrHeld)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := c.Do(t.Context(), name, &pglock.AcquireOptions{Wait: 30 * time.Millisecond}, func(ctx context.Context, _ *pglock.Lease) error {
		waitForClock(t, pool, 100*time.Millisecond)
		return ctx.Err()
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
}
