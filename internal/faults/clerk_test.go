//go:build linux

package faults_test

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
)

// fingerprint is that of every request: a key is one request.
var fingerprint = idem.FingerprintOf([]byte("faults"))

// keyFor is a key that other workers use at about the same time: one of the last few, of
// which one comes up each span.
func (w *worker) keyFor(random *rand.Rand, k kind, span time.Duration, last int64) idem.Key {
	moment := now() / int64(span)
	return idem.Key{Operation: string(k), Scope: "faults", Key: fmt.Sprint(moment - random.Int64N(last))}
}

// clerk does something once, whoever else does it too, and asks again until it is
// answered or has lost its patience.
func (w *worker) clerk(ctx context.Context, random *rand.Rand) {
	k := pick(random, []kind{do, do, doTx, inbox})
	key := w.keyFor(random, k, w.TTL/5, 4)
	for range 1 + random.IntN(4) {
		o := w.rec.call(k, key.Key)
		err := map[kind]func(context.Context, *rand.Rand, *op, idem.Key) error{
			do: w.do, doTx: w.doTx, inbox: w.inbox,
		}[k](ctx, random, o, key)
		w.rec.done(o, err)
		if err == nil {
			return
		}
		pause(ctx, between(random, 0, w.TTL/20))
	}
}

func (w *worker) do(ctx context.Context, random *rand.Rand, o *op, key idem.Key) error {
	opts := &idem.Options{Wait: between(random, 0, w.TTL/4)}
	result, err := w.store.Do(ctx, key, fingerprint, opts, w.once(random, o))
	o.answered(result.Reply, result.Replayed)
	return err
}

// doTx is do in a transaction of the worker's own, which goes on after a refusal.
func (w *worker) doTx(ctx context.Context, random *rand.Rand, o *op, key idem.Key) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		result, err := w.store.DoTx(ctx, tx, key, fingerprint, nil, w.once(random, o))
		o.answered(result.Reply, result.Replayed)
		if errors.Is(err, idem.ErrInProgress) || errors.Is(err, errOwn) {
			if _, after := tx.Exec(ctx, "SELECT 1"); after != nil {
				return after // a transaction left aborted would be an unexpected error
			}
		}
		return err
	})
}

// once is the function of Do: an effect, and an answer that differs each time.
func (w *worker) once(random *rand.Rand, o *op) func(context.Context, pgx.Tx) (idem.Reply, error) {
	wait, fails := between(random, 0, w.TTL/20), random.IntN(8) == 0
	return func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		if err := effect(ctx, tx, o); err != nil {
			return idem.Reply{}, err
		}
		pause(ctx, wait)
		if fails {
			return idem.Reply{}, errOwn
		}
		return reply(), nil
	}
}

// inbox receives a message that others receive too.
func (w *worker) inbox(ctx context.Context, _ *rand.Rand, o *op, key idem.Key) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		return w.store.Inbox(ctx, tx, "faults", key.Key, fingerprint, func(tx pgx.Tx) error { return effect(ctx, tx, o) })
	})
}

// answered notes the reply of an operation.
func (o *op) answered(r idem.Reply, replayed bool) {
	o.Digest, o.Replayed = digest(r), replayed
}

// reply is one that differs each time it is made, and has all bytes.
func reply() idem.Reply {
	body := []byte(crand.Text() + "\x00\xff")
	return idem.Reply{Status: 200 + len(body)%7, Header: http.Header{"X": {crand.Text()}}, Body: body}
}

// digest is the same for replies that are the same to the byte.
func digest(r idem.Reply) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", r.Status, r.Header, r.Body))
	return hex.EncodeToString(sum[:8])
}
