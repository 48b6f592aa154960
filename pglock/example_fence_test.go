package pglock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// A fenced transaction for code that commits by itself.
func ExampleLease_BeginTx() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "invoices/2026-03", nil)
	if err != nil {
		panic(err)
	}

	write := func() error {
		tx, err := lease.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) // does nothing after Commit
		if _, err := tx.Exec(ctx, "SELECT 'the write'"); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	fmt.Println("while held:", write())
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	if refused, ok := errors.AsType[*pglock.FencedError](write()); ok {
		fmt.Println(refused.Name, "is refused:", refused.Reason)
	}
	// Output:
	// while held: <nil>
	// invoices/2026-03 is refused: pglock: lease is released
}

// Several leases in a transaction of one's own.
func ExampleFenceAll() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	var leases []*pglock.Lease
	for _, name := range []string{"stock/berlin", "stock/aachen"} {
		lease, err := client.TryAcquire(ctx, name, nil)
		if err != nil {
			panic(err)
		}
		leases = append(leases, lease)
	}

	move := func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pglock.FenceAll(ctx, tx, leases[0].Sequencer(), leases[1].Sequencer()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT 'the writes'")
			return err
		})
	}
	fmt.Println("both held:", move())
	if err := leases[1].Release(ctx); err != nil {
		panic(err)
	}
	fmt.Println("one of them lost:", errors.Is(move(), pglock.ErrFenced))
	// Output:
	// both held: <nil>
	// one of them lost: true
}

// A sequencer travels as text, in JSON too, and no digit of its token is lost.
func ExampleSequencer() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "import/files", nil)
	if err != nil {
		panic(err)
	}

	type job struct {
		Part  int
		Under pglock.Sequencer
	}
	message, err := json.Marshal(job{Part: 3, Under: lease.Sequencer()})
	if err != nil {
		panic(err)
	}
	var received job // in another process
	if err := json.Unmarshal(message, &received); err != nil {
		panic(err)
	}
	fmt.Println(received.Under.Name(), received.Under == lease.Sequencer())

	_, err = pglock.ParseSequencer("v2:something else")
	fmt.Println(errors.Is(err, pglock.ErrInvalidSequencer))
	// Output:
	// import/files true
	// true
}
