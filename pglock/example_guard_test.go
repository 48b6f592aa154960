package pglock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A table that no program can write to without the lease, also one that never heard of
// leases.
func ExampleGuardTable() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS balances (account text, cents bigint)"); err != nil {
		panic(err)
	}
	err := pglock.GuardTable(ctx, pool, pgx.Identifier{"public", "balances"}, pglock.GuardOptions{Lease: "accounts/balance"})
	if err != nil {
		panic(err)
	}

	_, err = pool.Exec(ctx, "DELETE FROM balances") // a forgotten script
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == pglock.CodeFenced {
		fmt.Println("refused:", refused.TableName)
	}

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	err = client.Do(ctx, "accounts/balance", nil, func(ctx context.Context, lease *pglock.Lease) error {
		return lease.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO balances VALUES ('alice', 100)")
			return err
		})
	})
	fmt.Println("under the lease:", err)
	// Output:
	// refused: balances
	// under the lease: <nil>
}

// The guarded tables, and what passes by their guards.
func ExampleGuards() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	table := pgx.Identifier{"public", "ledger"}
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS ledger (lease text, cents bigint) PARTITION BY HASH (lease)"); err != nil {
		panic(err)
	}
	if err := pglock.GuardTable(ctx, pool, table, pglock.GuardOptions{LeaseColumn: "lease"}); err != nil {
		panic(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS ledger_0 PARTITION OF ledger FOR VALUES WITH (MODULUS 1, REMAINDER 0)"); err != nil {
		panic(err)
	}

	guards, err := pglock.Guards(ctx, pool)
	if err != nil {
		panic(err)
	}
	for _, guard := range guards {
		if guard.Table.Sanitize() == table.Sanitize() {
			fmt.Println(guard.Table[1], "by column", guard.LeaseColumn)
			for _, hole := range guard.Holes {
				fmt.Println("hole:", hole.Table[1], hole.Problem)
			}
		}
	}
	removed, err := pglock.UnguardTable(ctx, pool, table)
	fmt.Println("removed:", removed, err)
	// Output:
	// ledger by column lease
	// hole: ledger_0 unguarded
	// removed: true <nil>
}
