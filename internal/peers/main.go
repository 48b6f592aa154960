// Command peers measures an uncontended acquire and release of Gatepost next to those
// of other locks, in turns on one machine: go run .
//
// Each is set up as fairly as its documentation lets one: durable where it can be, one
// client, one connection, a lease of 30 s where it has leases. A pair of blocks is
// compared with the two UPDATE commits that a lease is made of; the ratio is the median
// over the pairs. Servers that this machine doesn't have are left out, and said.
//
// A ratio says what a lock costs. What it is worth is in the other column: what refuses
// a holder that was stopped for longer than its lock lasts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	pairs := flag.Int("pairs", 9, "pairs of blocks")
	block := flag.Int("block", 200, "operations in a block")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *pairs, *block)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pairs, block int) error {
	postgres, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer postgres.close()
	peers := postgres.peers
	for _, start := range []func(context.Context) (*server, error){startRedis, startEtcd} {
		s, err := start(ctx)
		if err != nil {
			fmt.Println("left out:", err)
			continue
		}
		defer s.close()
		peers = append(peers, s.peers...)
	}
	results, err := measure(ctx, postgres.plain, peers, pairs, block)
	if err != nil {
		return err
	}
	fmt.Println(postgres.settings)
	return print(os.Stdout, results, pairs, block)
}
