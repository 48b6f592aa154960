package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// Waiting for another holder, for a while or for as long as the context lasts.
func ExampleClient_Acquire() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	one, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer one.Close(ctx)
	two, err := pglock.New(pool, pglock.Config{Holder: "web-2"})
	if err != nil {
		panic(err)
	}
	defer two.Close(ctx)
	held, err := one.TryAcquire(ctx, "export/nightly", nil)
	if err != nil {
		panic(err)
	}

	_, err = two.Acquire(ctx, "export/nightly", &pglock.AcquireOptions{Wait: 50 * time.Millisecond})
	fmt.Println("still held after 50 ms:", errors.Is(err, pglock.ErrHeld))

	time.AfterFunc(50*time.Millisecond, func() { _ = held.Release(ctx) })
	lease, err := two.Acquire(ctx, "export/nightly", nil) // woken by the release
	if err != nil {
		panic(err)
	}
	fmt.Println("now it is", lease.Holder(), "with a higher token:", lease.Token() > held.Token())
	// Output:
	// still held after 50 ms: true
	// now it is web-2 with a higher token: true
}

// Who has a name, without acquiring it. A name that nobody holds is no error.
func ExampleClient_Get() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	show := func() {
		info, err := client.Get(ctx, "index/rebuild")
		if err != nil {
			panic(err)
		}
		fmt.Println("held:", info.Held, info.Holder)
	}
	lease, err := client.TryAcquire(ctx, "index/rebuild", nil)
	if err != nil {
		panic(err)
	}
	show()
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	show()
	// Output:
	// held: true web-1
	// held: false
}

// Work that is not a call of Do watches Done. Here an operator frees the name.
func ExampleLease_Done() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{RenewEvery: 50 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "mailbox/7", nil)
	if err != nil {
		panic(err)
	}

	_, err = pool.Exec(ctx, "UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = 'mailbox/7'")
	if err != nil {
		panic(err)
	}
	select {
	case <-lease.Done():
		fmt.Println("stop:", lease.Err())
		fmt.Println("lost:", errors.Is(lease.Err(), pglock.ErrLost))
	case <-time.After(time.Minute):
		fmt.Println("the work is done")
	}
	// Output:
	// stop: pglock: lease is superseded
	// lost: true
}

// printer is a Tracer. It may implement more of the Tracer interfaces, for waits,
// renewals, losses, releases and fences.
type printer struct{}

func (printer) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}

func (printer) TraceAcquireEnd(_ context.Context, data pglock.TraceAcquireEndData) {
	switch {
	case errors.Is(data.Err, pglock.ErrHeld):
		fmt.Println(data.Name, "is held by another")
	case data.Err != nil:
		fmt.Println(data.Name, data.Err)
	default:
		fmt.Println(data.Name, "is acquired")
	}
}

func ExampleTracer() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Tracer: printer{}})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	_, _ = client.TryAcquire(ctx, "cache/warm", nil)
	_, _ = client.TryAcquire(ctx, "cache/warm", nil)
	// Output:
	// cache/warm is acquired
	// cache/warm is held by another
}
