package pglock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// A lease for efficiency: two starts of the same work become rare, and the work
// is told when it must stop.
func ExampleClient_Do() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	err = client.Do(ctx, "reports/daily", nil, func(ctx context.Context, lease *pglock.Lease) error {
		fmt.Println("working as", lease.Holder())
		return ctx.Err() // cancelled when the lease is lost
	})
	fmt.Println("done:", err)
	// Output:
	// working as web-1
	// done: <nil>
}

// A lease for correctness: the token is checked in the transaction of the write,
// so a holder that lost its lease without knowing cannot write.
func ExampleLease_InTx() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	err = client.Do(ctx, "accounts/close-month", nil, func(ctx context.Context, lease *pglock.Lease) error {
		return lease.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS closed_months (month text PRIMARY KEY)")
			return err // commits only while the token is the current one
		})
	})
	switch {
	case errors.Is(err, pglock.ErrFenced):
		fmt.Println("another one has taken over; nothing was written")
	case err != nil:
		panic(err)
	default:
		fmt.Println("written")
	}
	// Output: written
}

// Not to wait is an outcome, not a failure.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	lease, err := client.TryAcquire(ctx, "mail/digest", nil)
	if err != nil {
		panic(err)
	}
	defer lease.Release(ctx)

	_, err = client.TryAcquire(ctx, "mail/digest", nil)
	if held, ok := errors.AsType[*pglock.HeldError](err); ok {
		fmt.Println("held by", held.Holder)
	}
	// Output: held by web-1
}

// A sequencer lets another process write under the lease, and only as long as
// the lease lasts.
func ExampleClient_InTx() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "queue/part-7", nil)
	if err != nil {
		panic(err)
	}

	message := lease.Sequencer().String() // sent to a worker, which does:
	seq, err := pglock.ParseSequencer(message)
	if err != nil {
		panic(err)
	}
	write := func(tx pgx.Tx) error { return nil }
	fmt.Println("while held:", client.InTx(ctx, seq, write))

	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	err = client.InTx(ctx, seq, write)
	fmt.Println("after the release it is fenced off:", errors.Is(err, pglock.ErrFenced))
	// Output:
	// while held: <nil>
	// after the release it is fenced off: true
}

// In a transaction of one's own, the fence comes first.
func ExampleFence() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "ledger/eu", nil)
	if err != nil {
		panic(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pglock.Fence(ctx, tx, lease.Sequencer()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT 'the write'")
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}
