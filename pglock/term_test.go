package pglock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// slowToStop is an elector whose leader takes its time to stop.
func slowToStop(ctx context.Context, t *testing.T, e *pglock.Elector, value error) (told <-chan struct{}, stop func() error) {
	t.Helper()
	leading, stopping, finish := make(chan struct{}), make(chan struct{}, 10), make(chan struct{})
	over := make(chan error, 1)
	terms := 0
	go func() {
		over <- e.Run(ctx, func(ctx context.Context, _ *pglock.Lease) error {
			if terms++; terms > 1 {
				return errors.New("it leads again")
			}
			close(leading)
			<-ctx.Done()
			stopping <- struct{}{}
			<-finish
			return value
		})
	}()
	end := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(end)
	soon(t, "its term", leading)
	return stopping, func() error {
		end()
		select {
		case err := <-over:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("Run goes on")
			return nil
		}
	}
}

func TestElector_LossAfterResignIsNoReasonToGoOn(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	tracer := &recorder{}
	e := client(t, pool, pglock.Config{TTL: long, RenewEvery: often, Tracer: tracer}).Elector(name, nil)
	value := errors.New("of fn")
	told, stop := slowToStop(t.Context(), t, e, value)
	if err := e.Resign(); err != nil {
		t.Fatal(err)
	}
	<-told
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
	eventually(t, "loss", 10*time.Second, func() bool { return tracer.has("loss held=true true") })
	wantErr(t, stop(), value)
}

func TestElector_CtxThatEndsIsTheErrorWithFnsInIt(t *testing.T) {
	t.Parallel()
	for _, value := range []error{nil, errors.New("of fn")} {
		ctx, cancel := context.WithCancel(t.Context())
		e := client(t, pgtest.Pool(t), fast).Elector(pgtest.Name(t), nil)
		told, stop := slowToStop(ctx, t, e, value)
		cancel()
		<-told
		err := stop()
		wantErr(t, err, context.Canceled)
		if value != nil {
			wantErr(t, err, value)
		}
	}
}

func TestElector_ResignDoesntTakeAHandOverBack(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	e := client(t, pool, fast).Elector(name, nil)
	_, stop := slowToStop(t.Context(), t, e, nil)
	if err := errors.Join(e.HandOver("heir"), e.Resign()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	_, err := client(t, pool, fast).TryAcquire(t.Context(), name, nil)
	if held, ok := errors.AsType[*pglock.HeldError](err); !ok || held.Holder != "heir" {
		t.Errorf("error is %v, want it reserved", err)
	}
	acquire(t, client(t, pool, pglock.Config{Holder: "heir", DisableNotify: true}), name, nil)
}

func TestElector_RefusesNegativeOptions(t *testing.T) {
	t.Parallel()
	c := client(t, pgtest.Pool(t), fast)
	for _, opts := range []pglock.ElectorOptions{{Poll: -1}, {Backoff: -1}} {
		wantErr(t, c.Elector("x", &opts).Run(t.Context(), nil), pglock.ErrInvalidConfig)
	}
	for range c.Elector("x", &pglock.ElectorOptions{Poll: -1}).Observe(t.Context()) {
		t.Error("it observes")
	}
}
