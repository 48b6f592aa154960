package bench

import (
	"context"
	"sync"
	"time"
)

// writers run an operation over and over, each for itself.
type writers struct {
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu    sync.Mutex
	taken []time.Duration // of each that was done
	err   error
	full  chan struct{} // closed when enough were done, or one failed
}

// refusedPause is how long one waits that was refused: without it, they would take the
// processor from whoever else runs.
const refusedPause = 5 * time.Millisecond

// startWriters starts a number of them. Errors that pass are not timed. They stop by stop,
// and at the first other error.
func startWriters(ctx context.Context, n, enough int, do op, passes func(error) bool) *writers {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{cancel: cancel, full: make(chan struct{})}
	full := sync.OnceFunc(func() { close(w.full) })
	for range n {
		w.working.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				err := do(ctx)
				if ctx.Err() != nil || passes != nil && passes(err) {
					_ = pause(ctx, refusedPause)
					continue
				}
				if w.done(time.Since(start), err) >= enough || err != nil {
					full()
				}
				if err != nil {
					return
				}
			}
		})
	}
	return w
}

func (w *writers) done(took time.Duration, err error) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = err
		return 0
	}
	w.taken = append(w.taken, took)
	return len(w.taken)
}

// busy waits until enough was written, and gives the median of what that took.
func (w *writers) busy(ctx context.Context) (time.Duration, error) {
	select {
	case <-w.full:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	return p50(w.taken), nil
}

// stop ends them, waits for them, and returns the first error.
func (w *writers) stop() error {
	w.cancel()
	w.working.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
