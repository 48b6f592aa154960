package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/gen/idemdb"
)

// outcome is what fn came to, to be stored.
type outcome struct {
	reply Reply
	undo  bool // what fn wrote
}

// run calls fn in the effect's savepoint. An error means that nothing is to be
// stored.
func (k *claim) run(ctx context.Context) (outcome, error) {
	tx := newGuardedTx(k.tx)
	defer tx.close()
	reply, err := k.fn(context.WithValue(ctx, txKey{}, tx), tx)
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", k.key, interrupted(ctx, err))
	}
	return tx.judge(reply, err)
}

// judge tells what fn means from what it returned and what its transaction met.
func (w *watch) judge(reply Reply, err error) (outcome, error) {
	final, isFinal := errors.AsType[*finalError](err)
	status := w.status()
	switch {
	case isFinal && passing(err):
		return outcome{}, err
	case w.conflict != nil && (isFinal || status == 'E'):
		return outcome{}, errors.Join(translate(w.conflict), err)
	case err != nil && !isFinal:
		return outcome{}, err
	case status == 'E' && isFinal && !final.keep && w.cause != nil:
		return outcome{reply: final.reply, undo: true}, nil
	case status == 'E':
		return outcome{}, errors.Join(errAborted, w.cause)
	case status != 'T':
		return outcome{}, errEnded
	case isFinal:
		return outcome{reply: final.reply, undo: !final.keep}, nil
	default:
		return outcome{reply: reply}, nil
	}
}

// finish stores an outcome and, in the same round trip, closes the place with end.
// It returns whether the last answer was COMMIT.
func (k *claim) finish(ctx context.Context, o outcome, end string) (*roundTrip, error) {
	record, err := k.record(o.reply, k.attempt)
	if err != nil {
		return nil, err
	}
	trip := &roundTrip{tx: k.tx, send: k.tx.SendBatch, before: []statement{{sql: releaseEffect}}}
	if o.undo {
		// Alone: in a transaction that is aborted, nothing else could be prepared.
		if _, err := k.tx.Exec(ctx, rollbackToEffect); err != nil {
			return nil, err
		}
	}
	if k.attemptNo > 1 {
		trip.after = append(trip.after, statement{idemdb.KeyStepsForget, []any{k.key.Operation, string(k.key.Scope), k.key.Key}})
	}
	trip.after = append(trip.after, statement{sql: end})
	_, err = idemdb.New(trip).KeyFinish(ctx, record)
	return trip, err
}
