//go:build linux

package faults_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
)

// attempts does something once in lease mode, over as many processes as it takes. It
// may stop in the middle, as a crash, and it looks at nothing before it finishes.
func (w *worker) attempts(ctx context.Context, random *rand.Rand) {
	key := w.keyFor(random, begin, w.TTL/4, 10) // it comes up long enough for a takeover
	o := w.rec.call(begin, key.Key)
	attempt, err := w.store.Begin(ctx, key, fingerprint)
	if err == nil {
		if replayed, isReplay := attempt.Replay(); isReplay {
			o.answered(replayed, true)
		}
	}
	w.rec.done(o, err)
	if err != nil || o.Replayed {
		return
	}
	pause(ctx, between(random, 0, w.TTL/2))
	w.step(ctx, random, attempt, o)
	pause(ctx, between(random, 0, w.TTL/2))
	if random.IntN(6) == 0 {
		w.giveBack(ctx, attempt, o)
		return
	}
	w.end(ctx, random, attempt, o)
}

func (w *worker) step(ctx context.Context, random *rand.Rand, a *idem.Attempt, of *op) {
	o := w.rec.call(step, of.Name)
	o.Of = of.ID
	_, err := a.Step(ctx, "first", func(tx pgx.Tx) ([]byte, error) {
		pause(ctx, between(random, 0, w.TTL/20))
		return []byte(o.ID), effect(ctx, tx, o)
	})
	w.rec.done(o, err)
}

func (w *worker) end(ctx context.Context, random *rand.Rand, a *idem.Attempt, of *op) {
	for range 3 { // an unknown outcome is asked for again
		o := w.rec.call(finish, of.Name)
		o.Of = of.ID
		r := reply()
		o.answered(r, false)
		err := a.Finish(ctx, r, func(tx pgx.Tx) error {
			pause(ctx, between(random, 0, w.TTL/20))
			return effect(ctx, tx, o)
		})
		w.rec.done(o, err)
		if o.Result != "unavailable" {
			return
		}
	}
}

func (w *worker) giveBack(ctx context.Context, a *idem.Attempt, of *op) {
	o := w.rec.call(giveBack, of.Name)
	o.Of = of.ID
	w.rec.note(*o)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	w.rec.done(o, a.Release(ctx))
}
