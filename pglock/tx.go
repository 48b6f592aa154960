package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// InTx runs fn in a fenced transaction: it commits only if this lease's token
// was the current one when it began, and no takeover is granted before it ends.
// This is the rung that protects: what fn writes through tx is refused to a
// holder that lost its lease, whatever that holder believes.
//
// fn's error, or a panic, rolls back and comes back. Commit is InTx's: in fn it is an
// error and does nothing. The transaction may take FenceTimeout at most. It costs no round
// trip more than BEGIN and COMMIT, and one row lock.
//
// Errors: *FencedError when refused (fn is not called), and when a guarded table refuses
// a write of fn's because the lease was released after that (ErrFenced alone where the
// database can't be asked for the reason any more); ErrFenceTimeout;
// ErrCommitUnknown when COMMIT was not answered and could not be resolved;
// ErrFenceMisplaced when a statement of fn's, such as a script's own COMMIT, had ended
// the transaction: the fence went with it. Any other error means that nothing was
// committed.
func (l *Lease) InTx(ctx context.Context, fn func(pgx.Tx) error) error {
	tx, err := l.beginFenced(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	return runInTx(ctx, tx, fn)
}

// BeginTx begins a fenced transaction, as InTx, for a caller that commits it by
// itself. Options: any isolation level; pgx.ReadOnly and a BeginQuery or
// CommitQuery of one's own are ErrFenceMisplaced. The transaction is a pgx.Tx
// in every way; Commit ignores the end of its ctx for 5 s, so that a deadline
// doesn't make an outcome unknown.
func (l *Lease) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	tx, err := l.beginFenced(ctx, opts)
	if err != nil {
		return nil, err // not a nil *fencedTx in a pgx.Tx
	}
	return tx, nil
}

func (l *Lease) beginFenced(ctx context.Context, opts pgx.TxOptions) (*fencedTx, error) {
	if err := l.Err(); err != nil { // known without asking
		return nil, l.client.refuse(ctx, &FencedError{Name: l.seq.name, Token: l.seq.token, Reason: err})
	}
	tx, err := l.client.beginFenced(ctx, []Sequencer{l.seq}, opts)
	if err == nil {
		return tx, nil
	}
	if refused, ok := errors.AsType[*FencedError](err); ok {
		_ = l.lose(lossOf(refused)) // the database's word ends it at once
	}
	return nil, err
}

// lossOf is what a refusal means for the holder: one that is still holding did
// not release, so somebody else did.
func lossOf(refused *FencedError) error {
	if errors.Is(refused.Reason, ErrReleased) {
		return ErrSuperseded
	}
	return refused.Reason
}

// InTx is Lease.InTx for a process that was handed a lease's sequencer. It knows
// nothing of the lease but what the database says.
func (c *Client) InTx(ctx context.Context, seq Sequencer, fn func(pgx.Tx) error) error {
	return c.InTxAll(ctx, []Sequencer{seq}, fn)
}

// InTxAll is InTx for several leases: the transaction commits only if all their
// tokens were the current ones when it began, and holds the takeovers of all of
// them off. They are locked in the order of their names, whatever order they are
// given in, so that two such transactions don't deadlock. One round trip for
// BEGIN and all fences.
func (c *Client) InTxAll(ctx context.Context, seqs []Sequencer, fn func(pgx.Tx) error) error {
	tx, err := c.beginFenced(ctx, seqs, pgx.TxOptions{})
	if err != nil {
		return err
	}
	return runInTx(ctx, tx, fn)
}

// runInTx commits after fn; an error or a panic rolls back.
func runInTx(ctx context.Context, tx *fencedTx, fn func(pgx.Tx) error) error {
	defer func() {
		// A no-op after Commit. The caller's ctx may be why we roll back.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if err := fn(workTx{tx}); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return tx.fencedOff(ctx, tx.timedOut(err))
	}
	if tx.over.Load() {
		return fmt.Errorf("fence %q: the function rolled its transaction back and returned no error: %w", tx.seqs[0].name, pgx.ErrTxClosed)
	}
	return tx.Commit(ctx)
}

// errNotYours is for a Commit in fn, whose outcome InTx could not tell its caller.
var errNotYours = errors.New("pglock: this transaction ends when the function returns: return an error to roll back, nil to commit; Begin makes a nested one")

// workTx is the transaction that fn gets.
type workTx struct{ *fencedTx }

func (tx workTx) Commit(context.Context) error {
	if tx.over.Load() {
		return pgx.ErrTxClosed
	}
	return errNotYours
}
