package bench

import (
	"context"
	"slices"
	"sync"
	"time"
)

// op is one operation.
type op func(ctx context.Context) error

// block runs about n operations and says how long each took.
type block func(ctx context.Context, n int) ([]time.Duration, error)

// oneByOne is a block of a single client.
func oneByOne(do op) block {
	return func(ctx context.Context, n int) ([]time.Duration, error) { return repeat(ctx, n, do) }
}

// crowd is a block of several clients at once, each of which runs a quarter of n
// operations.
func crowd(clients int, do op) block {
	return func(ctx context.Context, n int) ([]time.Duration, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		durations := make([][]time.Duration, clients)
		var working sync.WaitGroup
		for i := range clients {
			working.Go(func() {
				var err error
				if durations[i], err = repeat(ctx, max(n/4, 2), do); err != nil {
					cancel(err)
				}
			})
		}
		working.Wait()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return slices.Concat(durations...), nil
	}
}

// repeat times n operations one after another.
func repeat(ctx context.Context, n int, do op) ([]time.Duration, error) {
	durations := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		durations = append(durations, time.Since(start))
	}
	return durations, nil
}

// A block of a single client is cut into turns of so many operations, ours and plain
// ones, so that a disk that changes its pace in the middle of a pair does so for both.
const turn = 20

// compare measures pairs of blocks, the order swapped with each turn. A short block of
// each, which doesn't count, comes before.
func (e *env) compare(ctx context.Context, turns int, ours, plain block) (*Ratio, error) {
	for _, run := range []block{ours, plain} {
		if _, err := run(ctx, max(e.Block/4, 2)); err != nil {
			return nil, err
		}
	}
	swapped := false
	return e.pairs(ctx, func(ctx context.Context) (time.Duration, time.Duration, error) {
		var taken [2][]time.Duration // ours, plain
		for i := range turns {
			n := e.Block*(i+1)/turns - e.Block*i/turns
			if err := oneTurn(ctx, n, swapped, &taken, ours, plain); err != nil {
				return 0, 0, err
			}
			swapped = !swapped
		}
		return p50(taken[0]), p50(taken[1]), nil
	})
}

func oneTurn(ctx context.Context, n int, swapped bool, taken *[2][]time.Duration, sides ...block) error {
	for i := range sides {
		if swapped {
			i = 1 - i
		}
		durations, err := sides[i](ctx, n)
		if err != nil {
			return err
		}
		taken[i] = append(taken[i], durations...)
	}
	return nil
}

// turns is how many turns a block of a single client has.
func (e *env) turns() int { return max(e.Block/turn, 1) }

// pairs repeats a comparison and sums it up.
func (e *env) pairs(ctx context.Context, once func(context.Context) (ours, plain time.Duration, err error)) (*Ratio, error) {
	var ours, plain []time.Duration
	for i := range e.Pairs {
		e.Progress(e.row, i+1, e.Pairs)
		o, p, err := once(ctx)
		if err != nil {
			return nil, err
		}
		ours, plain = append(ours, o), append(plain, p)
	}
	return ratioOf(ours, plain), nil
}
