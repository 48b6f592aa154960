package idem_test

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// No lock at all: whoever comes second gets the row of the first.
func ExampleInsertOnce() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()
	defer pool.Exec(ctx, "DROP TABLE invoices")

	_, err := pool.Exec(ctx, "CREATE TABLE invoices (number text PRIMARY KEY, total int)")
	if err != nil {
		panic(err)
	}

	for _, total := range []int{100, 999} {
		invoice := idem.Insert{
			Table:   pgx.Identifier{"public", "invoices"},
			Columns: []string{"number", "total"},
			Values:  []any{"2026-0001", total},
			Key:     []string{"number"},
		}
		row, outcome, err := idem.InsertOnce(ctx, pool, invoice, pgx.RowToMap)
		if err != nil {
			panic(err)
		}
		fmt.Println(outcome, row["total"])
	}
	// Output:
	// inserted 100
	// existed 100
}

// Many rows at once, each once, with counts.
func ExampleCopyOnce() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	_, err := pool.Exec(ctx, "DROP TABLE IF EXISTS readings; CREATE TABLE readings (meter int, hour int, kwh int, UNIQUE (meter, hour))")
	if err != nil {
		panic(err)
	}

	target := idem.Target{
		Table:   pgx.Identifier{"public", "readings"},
		Columns: []string{"meter", "hour", "kwh"},
		Key:     []string{"meter", "hour"},
	}
	for range 2 {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			counts, err := idem.CopyOnce(ctx, tx, target, pgx.CopyFromRows([][]any{{7, 1, 10}, {7, 2, 12}, {7, 1, 11}}))
			fmt.Printf("%d rows: %d inserted, %d there already, %d duplicate\n",
				counts.Rows, counts.Inserted, counts.Existed, counts.Duplicate)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// 3 rows: 2 inserted, 0 there already, 1 duplicate
	// 3 rows: 0 inserted, 2 there already, 1 duplicate
}
