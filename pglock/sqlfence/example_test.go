package sqlfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/gatepost/gatepost/pglock/sqlfence"
	"github.com/jackc/pgx/v5/stdlib"
)

// In a transaction of database/sql, the fence comes first.
func ExampleFence() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool) // or sql.Open with any driver
	defer db.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	lease, err := client.TryAcquire(ctx, "ledger/us", nil)
	if err != nil {
		panic(err)
	}

	write := func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		if err := sqlfence.Fence(ctx, tx, lease.Sequencer()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "SELECT 'the write'"); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println("while held:", write())
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	fmt.Println("after the release it is fenced off:", errors.Is(write(), pglock.ErrFenced))
	// Output:
	// while held: <nil>
	// after the release it is fenced off: true
}

// A resource in another database than the lease takes a token only if none above
// it has come.
func ExampleAdvance() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // the resource's database, and here the lease's too
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	var tokens []int64 // of two holders, one after the other
	for range 2 {
		lease, err := client.TryAcquire(ctx, "warehouse/south", nil)
		if err != nil {
			panic(err)
		}
		tokens = append(tokens, lease.Token())
		if err := lease.Release(ctx); err != nil {
			panic(err)
		}
	}

	for _, holder := range []int{0, 1, 0} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		err = sqlfence.Advance(ctx, tx, "warehouse/south", tokens[holder]) // and then the write
		fmt.Println(holder, errors.Is(err, pglock.ErrFenced))
		if err != nil {
			_ = tx.Rollback()
		} else if err := tx.Commit(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 0 false
	// 1 false
	// 0 true
}
