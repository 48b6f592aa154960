package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// recorder writes down what it is told, with each End in the context of its Start.
type recorder struct {
	mu     sync.Mutex
	events []string
}

type started struct{}

func (r *recorder) start(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, started{}, what)
}

func (r *recorder) end(ctx context.Context, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what, _ := ctx.Value(started{}).(string)
	r.events = append(r.events, what+" "+fmt.Sprintf(format, args...))
}

func (r *recorder) has(event string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.events, event)
}

func (r *recorder) TraceAcquireStart(ctx context.Context, d pglock.TraceAcquireStartData) context.Context {
	return r.start(ctx, "acquire as "+d.Holder)
}
func (r *recorder) TraceAcquireEnd(ctx context.Context, d pglock.TraceAcquireEndData) {
	r.end(ctx, "token=%t held=%t", d.Token > 0, errors.Is(d.Err, pglock.ErrHeld))
}

func (r *recorder) TraceWaitStart(ctx context.Context, d pglock.TraceWaitStartData) context.Context {
	return r.start(ctx, "wait for "+d.Held.Holder)
}
func (r *recorder) TraceWaitEnd(ctx context.Context, d pglock.TraceWaitEndData) {
	r.end(ctx, "waited=%t err=%v", d.Waited > 0, d.Err)
}

func (r *recorder) TraceRenewStart(ctx context.Context, d pglock.TraceRenewStartData) context.Context {
	return r.start(ctx, fmt.Sprintf("renew %d", d.Leases))
}
func (r *recorder) TraceRenewEnd(ctx context.Context, d pglock.TraceRenewEndData) {
	r.end(ctx, "renewed=%d err=%v", d.Renewed, d.Err)
}

func (r *recorder) TraceLoss(ctx context.Context, d pglock.TraceLossData) {
	r.end(r.start(ctx, "loss"), "held=%t %t", d.Held > 0, errors.Is(d.Reason, pglock.ErrSuperseded))
}

func (r *recorder) TraceReleaseStart(ctx context.Context, d pglock.TraceReleaseStartData) context.Context {
	return r.start(ctx, fmt.Sprintf("release held=%t", d.Held > 0))
}
func (r *recorder) TraceReleaseEnd(ctx context.Context, d pglock.TraceReleaseEndData) {
	r.end(ctx, "err=%v", d.Err)
}

func (r *recorder) TraceFenceStart(ctx context.Context, d pglock.TraceFenceStartData) context.Context {
	return r.start(ctx, fmt.Sprintf("fence %d", d.Leases))
}
func (r *recorder) TraceFenceEnd(ctx context.Context, d pglock.TraceFenceEndData) {
	r.end(ctx, "fenced=%t", errors.Is(d.Err, pglock.ErrFenced))
}

func TestTracer_IsToldOfEverything(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	r := &recorder{}
	c := client(t, pool, pglock.Config{Holder: "me", TTL: time.Minute, Tracer: r})
	other := client(t, pool, pglock.Config{Holder: "other", TTL: time.Minute})

	held := acquire(t, other, name, nil)
	waiting := granted(t, c, name)
	registered(t, pool, name, 1)
	release(t, held)
	l := within(t, 10*time.Second, waiting)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.InTx(t.Context(), func(pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	release(t, l)
	lost := acquire(t, c, name, nil)
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
	wantErr(t, lost.Renew(t.Context()), pglock.ErrSuperseded)
	wantErr(t, c.InTx(t.Context(), lost.Sequencer(), nil), pglock.ErrFenced)

	for _, event := range []string{
		"acquire as me token=false held=true", "wait for other waited=true err=<nil>",
		"acquire as me token=true held=false", "renew 1 renewed=1 err=<nil>", "fence 1 fenced=false",
		"release held=true err=<nil>", "renew 1 renewed=0 err=<nil>", "loss held=true true", "fence 1 fenced=true",
	} {
		if !r.has(event) {
			t.Errorf("%q is missing in %q", event, r.events)
		}
	}
}

func TestTracer_IsToldOfWhatIsLearntLate(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, lose := range map[string]func(*testing.T, *pglock.Lease) error{
		"loss held=true true": func(t *testing.T, l *pglock.Lease) error {
			exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, l.Name())
			return l.Release(t.Context()) // is the first to learn of it
		},
		"fence 1 fenced=true": func(t *testing.T, l *pglock.Lease) error {
			release(t, l)
			return l.InTx(t.Context(), func(pgx.Tx) error { return nil }) // needs no database
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			c := client(t, pool, pglock.Config{TTL: time.Minute, Tracer: r})
			wantErr(t, lose(t, acquire(t, c, pgtest.Name(t), nil)), pglock.ErrLost)
			if !r.has(what) {
				t.Errorf("%q is missing in %q", what, r.events)
			}
		})
	}
}
