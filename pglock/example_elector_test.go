package pglock_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// Every process can see who leads, and when that changes.
func ExampleElector_Observe() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	client, err := pglock.New(pool, pglock.Config{Holder: "web-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(context.WithoutCancel(ctx))
	elector := client.Elector("poller", &pglock.ElectorOptions{Poll: 20 * time.Millisecond}) // else a second
	states := elector.Observe(ctx)
	show := func(leader pglock.LeaseInfo) {
		if leader.Held {
			fmt.Println(leader.Holder, "leads")
		} else {
			fmt.Println("nobody leads")
		}
	}

	show(<-states)
	err = elector.Run(ctx, func(context.Context, *pglock.Lease) error {
		show(<-states)
		return nil
	})
	if err != nil {
		panic(err)
	}
	show(<-states)
	// Output:
	// nobody leads
	// web-1 leads
	// nobody leads
}

// A leader that is to be replaced hands over to a candidate that it chooses.
func ExampleElector_HandOver() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()

	leads := make(chan string)
	var running sync.WaitGroup
	campaign := func(holder string) *pglock.Elector {
		client, err := pglock.New(pool, pglock.Config{Holder: holder})
		if err != nil {
			panic(err)
		}
		elector := client.Elector("dispatcher", nil)
		running.Go(func() {
			defer client.Close(ctx)
			_ = elector.Run(ctx, func(ctx context.Context, lease *pglock.Lease) error {
				leads <- lease.Holder()
				<-ctx.Done() // resigned, lost, or the process ends
				return nil
			})
		})
		return elector
	}

	first := campaign("web-1")
	fmt.Println(<-leads, "leads")
	second := campaign("web-2")
	if err := first.HandOver("web-2"); err != nil {
		panic(err)
	}
	fmt.Println(<-leads, "leads")
	if err := second.Resign(); err != nil {
		panic(err)
	}
	running.Wait()
	// Output:
	// web-1 leads
	// web-2 leads
}
