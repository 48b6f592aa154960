package pglock_test

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// Names that are used once, such as one a job, leave a row behind. A program removes
// them now and then, on every node if that is simpler.
func ExampleClient_GC() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	err = client.Do(ctx, "job/4711", nil, func(context.Context, *pglock.Lease) error { return nil })
	if err != nil {
		panic(err)
	}

	removed, err := client.GC(ctx) // the row stays for a week
	fmt.Println(removed, err)
	// Output: 0 <nil>
}
