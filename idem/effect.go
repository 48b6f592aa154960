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
	tx.close()
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", k.key, interrupted(ctx, err))
	}
	return tx.judge(reply, err)
}

// judge tells what fn means from what it returned and what its transaction met.
func (w *watch) judge(reply Reply, err error) (outcome, error) {
	w.mu.Lock() // fn may have left a goroutine behind
	defer w.mu.Unlock()
	final, isFinal := errors.AsType[*finalError](err)
	aborted := w.status() == txAborted
	switch {
	case isFinal && passing(err):
		return outcome{}, err
	case w.conflict != nil && (isFinal || aborted):
		return outcome{}, errors.Join(translate(w.conflict), err)
	case err != nil && !isFinal:
		return outcome{}, err
	case w.conn.PgConn().IsBusy():
		return outcome{}, errUnread
	case aborted && isFinal && !final.keep && w.cause != nil && !passing(w.cause):
		return outcome{reply: final.reply, undo: true}, nil
	case aborted:
		return outcome{}, errors.Join(errAborted, w.cause)
	case w.status() != txOpen:
		return outcome{}, errEnded
	case isFinal:
		return outcome{reply: final.reply, undo: !final.keep}, nil
	default:
		return outcome{reply: reply}, nil
	}
}

// finish stores an outcome and, in the same round trip, closes the place with end.
// Where the transaction is aborted the statement that undoes goes ahead, alone:
// nothing else could be prepared. The effect's savepoint ends with its place.
func (k *claim) finish(ctx context.Context, o outcome, end string) (*roundTrip, error) {
	record, err := k.record(o.reply, k.attempt)
	if err != nil {
		return nil, err
	}
	trip := &roundTrip{tx: k.tx, send: k.tx.SendBatch}
	switch {
	case o.undo && k.tx.Conn().PgConn().TxStatus() == txAborted:
		if _, err := k.tx.Exec(ctx, rollbackToEffect); err != nil {
			return nil, k.failure(ctx, "finish", err)
		}
	case o.undo:
		trip.before = []statement{{sql: rollbackToEffect}}
	}
	if k.attemptNo > 1 {
		trip.after = append(trip.after, statement{idemdb.KeyStepsForget, []any{k.key.Operation, string(k.key.Scope), k.key.Key}})
	}
	trip.after = append(trip.after, statement{sql: end})
	_, err = idemdb.New(trip).KeyFinish(ctx, record)
	return trip, err
}
