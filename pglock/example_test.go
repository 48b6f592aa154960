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

// One of several processes leads; when it is gone, another does.
func ExampleElector_Run() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	elector := client.Elector("scheduler", nil)
	err = elector.Run(ctx, func(ctx context.Context, lease *pglock.Lease) error {
		leader, err := elector.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println(leader.Holder, "leads")
		return nil // resigns; a real one works until ctx ends
	})
	fmt.Println(err)
	_, err = elector.Leader(ctx)
	fmt.Println("now nobody:", errors.Is(err, pglock.ErrNoLeader))
	// Output:
	// web-1 leads
	// <nil>
	// now nobody: true
}

// A resource in another database than the lease takes a token only if none above
// it has come.
func ExampleAdvance() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // the resource's database, and here the lease's too
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	var tokens []int64 // of two holders, one after the other
	for range 2 {
		lease, err := client.TryAcquire(ctx, "warehouse/north", nil)
		if err != nil {
			panic(err)
		}
		tokens = append(tokens, lease.Token())
		if err := lease.Release(ctx); err != nil {
			panic(err)
		}
	}

	for _, holder := range []int{0, 1, 0} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return pglock.Advance(ctx, tx, "warehouse/north", tokens[holder]) // and the write
		})
		fmt.Println(holder, errors.Is(err, pglock.ErrFenced))
	}
	// Output:
	// 0 false
	// 1 false
	// 0 true
}

// A transaction under several leases is refused when one of them is lost.
func ExampleClient_InTxAll() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	from, err := client.TryAcquire(ctx, "account/from", nil)
	if err != nil {
		panic(err)
	}
	to, err := client.TryAcquire(ctx, "account/to", nil)
	if err != nil {
		panic(err)
	}

	both := []pglock.Sequencer{from.Sequencer(), to.Sequencer()}
	fmt.Println(client.InTxAll(ctx, both, func(tx pgx.Tx) error { return nil }))
	if err := to.Release(ctx); err != nil {
		panic(err)
	}
	fmt.Println(errors.Is(client.InTxAll(ctx, both, func(tx pgx.Tx) error { return nil }), pglock.ErrFenced))
	// Output:
	// <nil>
	// true
}

// Who holds what, for people and for programs that only look.
func ExampleClient_List() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "shard/3", &pglock.AcquireOptions{Data: []byte(`{"rows": 12}`)})
	if err != nil {
		panic(err)
	}
	defer lease.Release(ctx)

	leases, err := client.List(ctx, &pglock.ListOptions{Prefix: "shard/"})
	if err != nil {
		panic(err)
	}
	for _, l := range leases {
		fmt.Println(l.Name, l.Holder, string(l.Data))
	}
	// Output: shard/3 web-1 {"rows": 12}
}
