package idem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// A charge that is booked once, however often the client retries: the second time it
// gets the first one's answer.
func ExampleStore_Do() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()
	defer pool.Exec(ctx, "DROP TABLE charges")
	if _, err := pool.Exec(ctx, "CREATE TABLE charges (account text, cents int)"); err != nil {
		panic(err)
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}

	request := []byte(`{"account": "a-1", "cents": 300}`)
	key := idem.Key{Operation: "charges.create", Scope: "tenant-1", Key: "8e03978e-40d5"} // from the client
	for range 2 {
		result, err := store.Do(ctx, key, idem.FingerprintOf(request), nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, "INSERT INTO charges VALUES ('a-1', 300)")
			return idem.Reply{Status: 201, Body: []byte("charged")}, err
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Status, string(result.Body), "replayed:", result.Replayed)
	}

	// The same key for something else is the client's mistake.
	_, err = store.Do(ctx, key, idem.FingerprintOf([]byte(`{"account": "a-1", "cents": 999}`)), nil, nil)
	fmt.Println("mismatch:", errors.Is(err, idem.ErrMismatch))

	var charges int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM charges").Scan(&charges); err != nil {
		panic(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// 201 charged replayed: false
	// 201 charged replayed: true
	// mismatch: true
	// charges: 1
}

// In a transaction of yours: the key is taken if it commits.
func ExampleStore_DoTx() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}

	key := idem.Key{Operation: "orders.ship", Scope: "tenant-1", Key: "order-17"}
	ship := func(tx pgx.Tx) (idem.Result, error) {
		return store.DoTx(ctx, tx, key, idem.FingerprintOf([]byte("order-17")), nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			return idem.Reply{Body: []byte("shipped")}, nil
		})
	}
	for _, commit := range []bool{false, true, true} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			panic(err)
		}
		result, err := ship(tx)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(result.Body), "replayed:", result.Replayed)
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			panic(err)
		}
	}
	// Output:
	// shipped replayed: false
	// shipped replayed: false
	// shipped replayed: true
}

type basket struct {
	Item string
	Pcs  int
}

// Values instead of bytes: they travel as JSON, and the request tells a retry from a
// key that was used again.
func ExampleDoValue() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}

	key := idem.Key{Operation: "orders.create", Scope: "tenant-1", Key: "c-1"}
	for range 2 {
		id, replayed, err := idem.DoValue(ctx, store, key, basket{"book", 2}, func(ctx context.Context, tx pgx.Tx) (int64, error) {
			return 4711, nil
		})
		if err != nil {
			panic(err)
		}
		fmt.Println("order", id, "replayed:", replayed)
	}
	_, _, err = idem.DoValue(ctx, store, key, basket{"book", 3}, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		return 4712, nil
	})
	fmt.Println(err)
	// Output:
	// order 4711 replayed: false
	// order 4711 replayed: true
	// orders.create in scope "tenant-1": idem: the key was used for another request
}

// A refusal that stays one is stored too, and what was written on the way is undone.
func ExampleFinal() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	defer pool.Exec(ctx, "DROP TABLE transfers")
	if _, err := pool.Exec(ctx, "CREATE TABLE transfers (cents int CHECK (cents < 1000))"); err != nil {
		panic(err)
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}

	key := idem.Key{Operation: "transfers.create", Scope: "tenant-1", Key: "t-1"}
	for range 2 {
		result, err := store.Do(ctx, key, idem.FingerprintOf([]byte("5000")), nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			if _, err := tx.Exec(ctx, "INSERT INTO transfers VALUES (5000)"); err != nil {
				return idem.Reply{}, idem.Final(idem.Reply{Status: 402, Body: []byte("too much")})
			}
			return idem.Reply{Status: 201}, nil
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Status, string(result.Body), "replayed:", result.Replayed)
	}
	// Output:
	// 402 too much replayed: false
	// 402 too much replayed: true
}
