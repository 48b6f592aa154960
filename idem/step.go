package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

const maxStepBytes = 200

// Step runs one part of the operation once over all attempts: fn's output is stored in
// the transaction of what fn writes, and an attempt that goes on after this one gets
// it back without running fn. Steps are known by their names, 1 to 200 bytes of UTF-8,
// and not by their order.
//
// The transaction locks the key's row first, as this attempt's, in a way that lets
// heartbeats pass and holds a takeover off: what a step of a stale attempt writes
// isn't committed. What fn does outside the database may happen more than once, when
// the process ends before the output is committed: send ExternalKey along. fn must not
// end the transaction, may run again when it met a concurrent one, and must not leave
// it idle for longer than ten leases (a minute at least): the server ends it then.
//
// An output of nil comes back empty, like one that is empty. Several steps may run at
// once; two of one name run both, and the one that commits later is undone and gets
// the other's output. Two round trips and what fn does, on a pooled connection.
//
// Errors: fn's own; ErrFenced (another attempt has the key: nothing was stored, or, where
// the answer to COMMIT was lost, the step may be, and is that attempt's now); ErrLapsed
// (nobody has, but the lease is over: begin again); ErrEnded; ErrInvalidKey (the name);
// ErrUnavailable (after which the step may be stored: run it again), ErrNotMigrated.
func (a *Attempt) Step(ctx context.Context, name string, fn func(pgx.Tx) ([]byte, error)) ([]byte, error) {
	if !storable(name, maxStepBytes) {
		return nil, fmt.Errorf("%w: a step's name must be 1 to %d bytes of UTF-8 without NUL", ErrInvalidKey, maxStepBytes)
	}
	if a.isClosed() {
		return nil, a.named(ErrEnded)
	}
	s := &step{Attempt: a, name: name}
	t := &attemptTx{
		first: func(q *idemdb.Queries) error { return s.begin(ctx, q) },
		run: func(tx pgx.Tx) (err error) {
			s.output, err = fn(tx)
			return err
		},
		last:   s.store,
		stored: s.stored,
	}
	err := a.call.repeat(ctx, func() error { return a.transaction(ctx, t) })
	a.settle(ctx, t.verdict)
	if err != nil && !errors.Is(err, errStored) {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	return append([]byte{}, s.output...), nil
}

// step is one call of Step.
type step struct {
	*Attempt
	name   string
	output []byte
}

// errStored ends a transaction that isn't needed: the output is there.
var errStored = errors.New("idem: the step is stored")

// begin locks the row, and reads what an earlier call stored.
func (s *step) begin(ctx context.Context, q *idemdb.Queries) error {
	row, err := q.StepBegin(ctx, idemdb.StepBeginParams{
		Operation: s.call.key.Operation, Scope: string(s.call.key.Scope), Key: s.call.key.Key, Attempt: s.id,
		Step: s.name, LimitMs: s.call.idleLimit(),
	})
	switch {
	case err != nil:
		return err
	case row.Lapsed:
		return ErrLapsed
	case !row.Held:
		return pgx.ErrNoRows
	case row.Stored:
		s.output = row.Output
		return errStored
	default:
		return nil
	}
}

func (s *step) store(ctx context.Context, q *idemdb.Queries) error {
	_, err := q.StepStore(ctx, idemdb.StepStoreParams{
		Operation: s.call.key.Operation, Scope: string(s.call.key.Scope), Key: s.call.key.Key,
		Step: s.name, Output: append([]byte{}, s.output...), // nil is NULL
	})
	if sqlState(err) == stateUniqueViolation { // a call of the same name was faster
		return fmt.Errorf("%w: %w", ErrRetryTx, err)
	}
	return err
}

// stored finds out whether the output is stored, after a COMMIT that was not
// answered: here, or by a call of the same name, whose output counts then.
func (s *step) stored(ctx context.Context) (bool, error) {
	if _, err := s.outcome(ctx); err != nil {
		return false, err
	}
	err := alone(ctx, s.call.pool, func(q *idemdb.Queries) (err error) {
		s.output, err = q.StepOutput(ctx, idemdb.StepOutputParams{
			Operation: s.call.key.Operation, Scope: string(s.call.key.Scope), Key: s.call.key.Key, Step: s.name,
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
