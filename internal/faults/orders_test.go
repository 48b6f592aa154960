//go:build linux

package faults_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gatepost/gatepost/internal/wallclock"
)

// orders are faults that a worker has to make by itself.
type orders struct {
	mu      sync.Mutex
	hang    time.Duration // of the next write, inside its transaction
	prepare string        // the next write is prepared under this name, and left
}

// obey reads orders, a line each, until the input ends: the conductor wants the worker
// to end then, or is gone.
func (w *worker) obey(ctx context.Context, input io.Reader, stop func()) {
	defer stop()
	for lines := bufio.NewScanner(input); lines.Scan(); {
		what, argument, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "stop":
			return
		case "prepare":
			w.orders.set(0, argument)
		case "clock":
			d, _ := time.ParseDuration(argument)
			wallclock.Step(d)
		case "hang":
			d, _ := time.ParseDuration(argument)
			w.orders.set(d, "")
		case "hog":
			d, _ := time.ParseDuration(argument)
			go w.hog(ctx, d)
		}
	}
}

func (o *orders) set(hang time.Duration, prepare string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hang, o.prepare = max(o.hang, hang), prepare
}

// take gives an order to one write.
func (o *orders) take() (hang time.Duration, prepare string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hang, prepare = o.hang, o.prepare
	o.hang, o.prepare = 0, ""
	return hang, prepare
}

// hog takes all connections of the pool and does nothing with them.
func (w *worker) hog(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	for range w.pool.Config().MaxConns {
		all.Go(func() {
			conn, err := w.pool.Acquire(ctx)
			if err != nil {
				return
			}
			defer conn.Release()
			<-ctx.Done()
		})
	}
	all.Wait()
}
