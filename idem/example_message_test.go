package idem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A broker delivers at least once. The mark and the effect are one commit, and the
// message is acknowledged after it.
func ExampleInbox() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()
	exampleTables(pool, "CREATE TABLE shipments (number text)")

	deliver := func(id, body string) {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return idem.Inbox(ctx, tx, "example.shipping", id, idem.FingerprintOf([]byte(body)), func(tx pgx.Tx) error {
				fmt.Println("ship", body)
				_, err := tx.Exec(ctx, "INSERT INTO shipments (number) VALUES ($1)", body)
				return err
			})
		})
		switch {
		case errors.Is(err, idem.ErrMismatch):
			fmt.Println("to the dead letters:", body)
		case err != nil:
			panic(err) // not acknowledged: it comes again
		}
	}
	deliver("m-1", "order 7")
	deliver("m-1", "order 7")
	deliver("m-1", "order 8")
	// Output:
	// ship order 7
	// to the dead letters: order 8
}

// exampleTables makes an example's tables, and forgets what it did the last time.
func exampleTables(pool *pgxpool.Pool, create ...string) {
	forget := []string{"DROP TABLE IF EXISTS shipments, articles", "DELETE FROM gatepost.idempotency_keys WHERE scope LIKE 'example.%'"}
	for _, sql := range append(forget, create...) {
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			panic(err)
		}
	}
}

// Many messages, marked in one round trip.
func ExampleInboxBatch() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	exampleTables(pool)

	var refused []idem.Refused
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		messages := []idem.Message{
			{ID: "m-1", Body: []byte("order 7")},
			{ID: "m-2", Body: []byte("order 8")},
			{ID: "m-1", Body: []byte("order 7")},
			{ID: "m-2", Body: []byte("order 9")},
		}
		refused, err = idem.InboxBatch(ctx, tx, "example.batch", messages, func(tx pgx.Tx, fresh []idem.Message) error {
			for _, m := range fresh {
				fmt.Println("ship", string(m.Body))
			}
			return nil
		})
		return err
	})
	if err != nil {
		panic(err) // nothing is acknowledged
	}
	for _, m := range refused {
		fmt.Println("to the dead letters:", string(m.Body))
	}
	// Output:
	// ship order 7
	// ship order 8
	// to the dead letters: order 9
}

// What was computed from a row is written only over the row it was computed from.
func ExampleCompareAndSet() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	exampleTables(pool, "CREATE TABLE articles (id int PRIMARY KEY, title text, version bigint NOT NULL)",
		"INSERT INTO articles VALUES (1, 'Draft', 1)")

	for _, title := range []string{"Ann's title", "Ben's title"} { // both have read version 1
		version, err := idem.CompareAndSet(ctx, pool, idem.Update{
			Table: pgx.Identifier{"public", "articles"},
			Key:   map[string]any{"id": 1},
			Set:   map[string]any{"title": title},
		}, 1)
		if stale, ok := errors.AsType[*idem.StaleError](err); ok {
			fmt.Printf("%s: read it again, it has version %d\n", title, stale.Current)
			continue
		}
		fmt.Printf("%s: version %d, %v\n", title, version, err)
	}
	// Output:
	// Ann's title: version 2, <nil>
	// Ben's title: read it again, it has version 2
}
