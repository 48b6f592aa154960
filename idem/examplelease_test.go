package idem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// provider stands for a service that charges cards, and honours idempotency keys.
type provider struct{ charged map[string]string }

func (p *provider) charge(_ context.Context, key string) (id string, err error) {
	if p.charged[key] == "" {
		p.charged[key] = fmt.Sprintf("ch_%d", len(p.charged)+1)
	}
	return p.charged[key], nil
}

// An effect outside the database: the claim is committed first, the provider gets a
// key that is the same for all attempts, and the answer is stored behind it.
func ExampleStore_Begin() {
	ctx := context.Background()
	pool := pgtest.ExamplePool() // a *pgxpool.Pool on your database
	defer pool.Close()
	cards := &provider{charged: map[string]string{}}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}

	request := []byte(`{"card": "c-1", "cents": 300}`)
	key := idem.Key{Operation: "cards.charge", Scope: "tenant-1", Key: "21f0-8a"} // from the client
	charge := func() (idem.Reply, error) {
		attempt, err := store.Begin(ctx, key, idem.FingerprintOf(request))
		if err != nil {
			return idem.Reply{}, err // idem.ErrInProgress: come back later
		}
		if reply, done := attempt.Replay(); done {
			return reply, nil
		}
		defer attempt.Release(context.WithoutCancel(ctx)) // does nothing behind Finish

		work, cancel := attempt.Context(ctx) // ends when the claim is lost
		defer cancel()
		id, err := cards.charge(work, attempt.ExternalKey())
		if err != nil {
			return idem.Reply{}, err
		}
		reply := idem.Reply{Status: 201, Body: []byte(id)}
		return reply, attempt.Finish(ctx, reply, func(tx pgx.Tx) error {
			return nil // rows that belong to it, in the same transaction
		})
	}
	for range 2 {
		reply, err := charge()
		if err != nil {
			panic(err)
		}
		fmt.Println(reply.Status, string(reply.Body))
	}
	fmt.Println("charges:", len(cards.charged))
	// Output:
	// 201 ch_1
	// 201 ch_1
	// charges: 1
}

// Somebody was here before and left nothing behind: the provider knows whether the
// effect happened.
func ExampleStore_BeginRecover() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	cards := &provider{charged: map[string]string{}}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}
	key, fp := idem.Key{Operation: "cards.charge", Scope: "tenant-1", Key: "77c1-02"}, idem.FingerprintOf([]byte("300"))

	// The first attempt charges the card and gives up before it can say so.
	first, err := store.Begin(ctx, key, fp)
	if err != nil {
		panic(err)
	}
	if _, err := cards.charge(ctx, first.ExternalKey()); err != nil {
		panic(err)
	}
	if err := first.Release(ctx); err != nil { // or it dies, and its lease lapses
		panic(err)
	}

	second, err := store.BeginRecover(ctx, key, fp, func(context.Context) (idem.Recovery, error) {
		id, found := cards.charged[key.ExternalKey()] // ask the provider
		if !found {
			return idem.Absent, nil // and it can't happen any more: go on
		}
		return idem.Done(idem.Reply{Status: 201, Body: []byte(id)}), nil
	})
	if errors.Is(err, idem.ErrInProgress) {
		fmt.Println("nobody knows; it stays in progress") // idem.Unknown, or an error
		return
	}
	if err != nil {
		panic(err)
	}
	reply, done := second.Replay()
	fmt.Println(reply.Status, string(reply.Body), done)
	// Output: 201 ch_1 true
}

// An attempt that goes on after another one does not repeat what is done.
func ExampleAttempt_Step() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		panic(err)
	}
	key, fp := idem.Key{Operation: "orders.ship", Scope: "tenant-1", Key: "o-99"}, idem.FingerprintOf([]byte("o-99"))

	ship := func(courierIsUp bool) error {
		attempt, err := store.Begin(ctx, key, fp)
		if err != nil {
			return err
		}
		defer attempt.Release(context.WithoutCancel(ctx))
		parcel, err := attempt.Step(ctx, "pack", func(pgx.Tx) ([]byte, error) {
			fmt.Println("packing")
			return []byte("parcel 7"), nil
		})
		if err != nil {
			return err
		}
		_, err = attempt.Step(ctx, "hand over", func(pgx.Tx) ([]byte, error) {
			if !courierIsUp {
				return nil, errors.New("the courier is not here")
			}
			fmt.Println("handing over", string(parcel))
			return nil, nil
		})
		if err != nil {
			return err
		}
		return attempt.Finish(ctx, idem.Reply{Status: 200}, nil)
	}
	fmt.Println(ship(false))
	fmt.Println(ship(true))
	// Output:
	// packing
	// step "hand over": the courier is not here
	// handing over parcel 7
	// <nil>
}

// Collected on every node, every few minutes. What a call finds doesn't depend on it.
func ExampleStore_GC() {
	ctx := context.Background()
	pool := pgtest.ExamplePool()
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{Retention: 48 * time.Hour})
	if err != nil {
		panic(err)
	}

	if _, err := store.GC(ctx); err != nil { // how many were removed, for a counter
		panic(err)
	}
	backlog, err := store.Backlog(ctx) // for a gauge: one that grows needs more of it
	if err != nil {
		panic(err)
	}
	fmt.Println("left:", backlog.Expired)
	// Output: left: 0
}
