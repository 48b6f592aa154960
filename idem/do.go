package idem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// cleanupTimeout bounds what runs after the caller's ctx may have ended: COMMIT,
	// ROLLBACK, and finding out what became of a COMMIT.
	cleanupTimeout = 5 * time.Second
	// maxTries is how often a transaction is run that meets concurrent ones.
	maxTries = 10
	maxPause = 200 * time.Millisecond
	// noticeTimeout is how long a server may take to notice a closed connection.
	noticeTimeout = time.Second
)

// Do runs fn once for a key: the claim of the key, what fn writes and its reply are
// committed together. A later call under the key gets the stored reply, with
// Replayed set, and does not run fn. A crash at any moment leaves either all of it
// or nothing, with the key free at once.
//
// fn runs in a transaction of the database's default isolation, on the pgx.Tx that
// it gets, and may run more than once, when its transaction met another one: what
// it does elsewhere is not undone. See Begin for effects outside of the database.
// It must not end the transaction, nor use it when it has returned. SET CONSTRAINTS
// ALL IMMEDIATE in it fails with SQLSTATE GP002, since the claim isn't finished before
// fn is. Its context carries the transaction: see Tx. What it returns decides:
//
//   - a Reply: kept, and replayed. One with a body over Config.MaxBody reaches this
//     caller whole, and later ones get *ReplayUnavailableError.
//   - Final(reply): its writes are undone, the reply is kept and replayed.
//     FinalKeep(reply): both are kept.
//   - any other error, a panic, or ctx has ended: nothing is kept, and the key is
//     free. A panic goes on.
//
// Errors: fn's own; ErrInvalidKey; ErrMismatch, whatever the earlier call came to;
// ErrInProgress (*InProgressError), after opts.Wait; ErrReplayUnavailable;
// ErrInvalidReply; ErrNotMigrated; ErrFenced where fn changed the key's own row;
// ErrUnavailable where the database can't be asked, fn's connection broke, COMMIT
// took more than 5 s or its outcome can't be found out within 5 s more, or ten tries
// met serialization failures or deadlocks, which ErrRetryTx matches too. After
// ErrUnavailable, call again: it tells what happened. Where ctx has ended, the
// error matches ctx.Err; the key may be in progress until the server has noticed.
//
// A first call takes two round trips and what fn does, on one connection at a time. A replay
// takes one, a SELECT, behind another replay of the store, and two behind a first call, which
// then takes three; it locks no row and writes nothing. At SERIALIZABLE a first call takes
// three. Who locks the whole table of keys, as CREATE INDEX does, holds up first calls, and
// replays behind them, until ctx ends.
func (s *Store) Do(ctx context.Context, key Key, fp Fingerprint, opts *Options, fn func(context.Context, pgx.Tx) (Reply, error)) (Result, error) {
	c, err := s.newCall(key, fp, opts, fn)
	if err != nil {
		return Result{}, err
	}
	return c.do(ctx)
}

func (c *call) do(ctx context.Context) (result Result, err error) {
	err = c.repeat(ctx, func() error {
		result, err = c.once(ctx)
		c.outwait(err)
		return err
	})
	return result, err
}

// repeat tries until it is through, has failed for good, or has tried for long
// enough.
func (c *call) repeat(ctx context.Context, once func() error) error {
	for try := 1; ; try++ {
		err := once()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx, err)
		case !again(err):
			return err
		case try == maxTries:
			return fmt.Errorf("%w: gave up after %d tries: %w", ErrUnavailable, try, err)
		}
		c.log(ctx, try, err)
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// outwait lets the next try wait for what a lost connection has left behind: its
// transaction has the key until the server notices.
func (c *call) outwait(err error) {
	if _, lost := errors.AsType[*lostError](err); !lost {
		return
	}
	if until := time.Now().Add(noticeTimeout); until.After(c.until) {
		c.until = until
	}
}

// log leaves out the error's text, which may be fn's.
func (c *call) log(ctx context.Context, try int, err error) {
	level := slog.LevelDebug
	if _, lost := errors.AsType[*lostError](err); lost {
		level = slog.LevelWarn
	}
	c.cfg.Logger.Log(ctx, level, "transaction is repeated", "operation", c.key.Operation, "try", try, "sqlstate", sqlState(err))
}

// again says whether a try that failed so left nothing behind and may succeed the
// next time.
func again(err error) bool {
	_, lost := errors.AsType[*lostError](err)
	return lost || retryable(err) || errors.Is(err, ErrRetryTx)
}

// lostError is of a connection that broke, and nothing was committed.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// pause waits before the next try, longer after each.
func pause(ctx context.Context, try int) error {
	longest := min(maxPause, time.Millisecond<<try)
	select {
	case <-time.After(rand.N(longest)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once is one try: a look without a lock, and then a transaction. Or that at once, and the
// look behind it, where there was something to see.
func (c *call) once(ctx context.Context) (Result, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return Result{}, c.failure(ctx, "look up", fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
	own := &ownTx{conn: conn}
	defer own.end(ctx)
	look, atOnce := idemdb.DBTX(conn), c.forecast.claimAtOnce()
	if atOnce {
		k := c.newClaim()
		k.unseen = true
		claimed, err := k.try(ctx, own.opening())
		own.tx = k.tx
		switch {
		case err != nil:
			return Result{}, perhapsStale(err)
		case claimed:
			return k.inOwn(ctx, own)
		}
		look = &roundTrip{send: conn.SendBatch, before: []statement{{sql: "ROLLBACK"}}}
	}
	found, err := c.probe(ctx, look)
	c.forecast.looked(found != nil || err != nil)
	if err != nil || found != nil {
		return value(found), perhapsStale(err)
	}
	return c.inOwn(ctx, own, atOnce)
}

func value(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

// perhapsStale marks the error of a connection that was there and broke, before
// fn was called: the next one may be better. Where none can be made, it is left.
func perhapsStale(err error) error {
	if _, none := errors.AsType[*pgconn.ConnectError](err); none || exhausted(err) || !errors.Is(err, ErrUnavailable) {
		return err
	}
	return &lostError{err}
}

// inOwn claims behind a look. inVain says that a claim was tried before it.
func (c *call) inOwn(ctx context.Context, own *ownTx, inVain bool) (Result, error) {
	k, err := c.take(ctx, own.opening())
	own.tx = k.tx
	if err != nil || k.replay != nil {
		return value(k.replay), perhapsStale(err)
	}
	if inVain {
		c.forecast.triedInVain()
	}
	return k.inOwn(ctx, own)
}

// inOwn runs fn behind a claim, and commits.
func (k *claim) inOwn(ctx context.Context, own *ownTx) (Result, error) {
	outcome, err := k.run(ctx)
	if err != nil {
		return Result{}, own.broken(err)
	}
	if err := k.commit(ctx, own, outcome); err != nil {
		return Result{}, err
	}
	return Result{Reply: outcome.reply}, nil
}

// commit stores the outcome and commits.
func (k *claim) commit(ctx context.Context, own *ownTx, o outcome) error {
	return k.conclude(ctx, own, conclusion{
		send:   func(ctx context.Context) (*roundTrip, error) { return k.finish(ctx, o, "COMMIT") },
		stored: k.stored,
	})
}
