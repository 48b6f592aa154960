package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// result is what came of a peer.
type result struct {
	peer
	p50    []time.Duration // of each block
	ratios []float64       // to the plain statements of the same pair
}

// measure runs a block of each peer and of plain in each pair, in an order that turns
// by one each time, after one block of each that doesn't count.
func measure(ctx context.Context, plain peer, peers []peer, pairs, block int) ([]result, error) {
	results := []result{{peer: plain}}
	for _, p := range peers {
		results = append(results, result{peer: p})
	}
	for pair := range pairs + 1 {
		for i := range results {
			r := &results[(i+pair)%len(results)]
			p50, err := r.block(ctx, block)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if pair > 0 {
				r.p50 = append(r.p50, p50)
			}
		}
	}
	for i := range results {
		r := &results[i]
		for pair, p50 := range r.p50 {
			r.ratios = append(r.ratios, float64(p50)/float64(results[0].p50[pair]))
		}
	}
	return results, nil
}

// block is the median of n cycles.
func (r *result) block(ctx context.Context, n int) (time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := r.cycle(ctx); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	return median(took), nil
}

func median[T int64 | float64 | time.Duration](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
