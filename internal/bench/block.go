package bench

import (
	"context"
	"sync"
	"time"
)

// op is one operation.
type op func(ctx context.Context) error

// block runs about n operations and gives the median of what they took.
type block func(ctx context.Context, n int) (time.Duration, error)

// oneByOne is a block of a single client.
func oneByOne(do op) block {
	return func(ctx context.Context, n int) (time.Duration, error) {
		durations, err := repeat(ctx, n, do)
		if err != nil {
			return 0, err
		}
		return p50(durations), nil
	}
}

// crowd is a block of several clients at once, each of which runs a quarter of n
// operations.
func crowd(clients int, do op) block {
	return func(ctx context.Context, n int) (time.Duration, error) {
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
			return 0, context.Cause(ctx)
		}
		var all []time.Duration
		for _, d := range durations {
			all = append(all, d...)
		}
		return p50(all), nil
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

// compare measures pairs of blocks, the order swapped with each pair. A short block of
// each, which doesn't count, comes before.
func (e *env) compare(ctx context.Context, ours, plain block) (*Ratio, error) {
	for _, run := range []block{ours, plain} {
		if _, err := run(ctx, max(e.Block/4, 2)); err != nil {
			return nil, err
		}
	}
	return e.pairs(ctx, func(ctx context.Context, swapped bool) (o, p time.Duration, err error) {
		if swapped {
			if p, err = plain(ctx, e.Block); err == nil {
				o, err = ours(ctx, e.Block)
			}
			return o, p, err
		}
		if o, err = ours(ctx, e.Block); err == nil {
			p, err = plain(ctx, e.Block)
		}
		return o, p, err
	})
}

// pairs repeats a comparison and sums it up.
func (e *env) pairs(ctx context.Context, once func(ctx context.Context, swapped bool) (ours, plain time.Duration, err error)) (*Ratio, error) {
	var ours, plain []time.Duration
	for i := range e.Pairs {
		e.Progress(e.row, i+1, e.Pairs)
		o, p, err := once(ctx, i%2 == 1)
		if err != nil {
			return nil, err
		}
		ours, plain = append(ours, o), append(plain, p)
	}
	return ratioOf(ours, plain), nil
}
