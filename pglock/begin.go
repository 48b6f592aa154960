package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gatepost/gatepost/gen/lockdb"
)

// beginFenced opens a fenced transaction. An expiry that was seen through a
// snapshot older than a heartbeat's commit is not believed at once.
func (c *Client) beginFenced(ctx context.Context, seqs []Sequencer, opts pgx.TxOptions) (tx *fencedTx, err error) {
	if seqs, err = inLockOrder(seqs); err != nil {
		return nil, err
	}
	ctx, end := c.trace.fenceStart(ctx, TraceFenceStartData{Name: seqs[0].name, Token: seqs[0].token, Leases: len(seqs)})
	defer func() { end(err) }()
	if opts.AccessMode == pgx.ReadOnly || opts.BeginQuery != "" || opts.CommitQuery != "" {
		return nil, fmt.Errorf("fence %q: %w: a fenced transaction is READ WRITE, with BEGIN and COMMIT of its own", seqs[0].name, ErrFenceMisplaced)
	}
	opts.AccessMode = pgx.ReadWrite
	tx, err = c.beginFencedOnce(ctx, seqs, opts)
	if errors.Is(err, ErrExpired) || c.learnedRights(err) {
		return c.beginFencedOnce(ctx, seqs, opts)
	}
	return tx, err
}

// learnedRights says whether to fence again in the other way, after a refusal that is
// the role's: one that only fences has no right to the leases and one to the function.
// When neither way is open, the next transaction begins with the first again.
func (c *Client) learnedRights(err error) bool {
	if sqlState(err) != stateInsufficientPrivilege {
		return false
	}
	return c.byFunction.CompareAndSwap(false, true) || !c.byFunction.CompareAndSwap(true, false)
}

// refuse tells the tracer of a refusal that needed no database.
func (c *Client) refuse(ctx context.Context, refused *FencedError) error {
	_, end := c.trace.fenceStart(ctx, TraceFenceStartData{Name: refused.Name, Token: refused.Token, Leases: 1})
	end(refused)
	return refused
}

// inLockOrder is the order that each transaction locks in.
func inLockOrder(seqs []Sequencer) ([]Sequencer, error) {
	if len(seqs) == 0 {
		return nil, fmt.Errorf("fence: %w: there is none", ErrInvalidSequencer)
	}
	for _, seq := range seqs {
		if seq.IsZero() {
			return nil, fmt.Errorf("fence: %w: it is the zero value", ErrInvalidSequencer)
		}
	}
	return slices.SortedFunc(slices.Values(seqs), Sequencer.compare), nil
}

func (c *Client) beginFencedOnce(ctx context.Context, seqs []Sequencer, opts pgx.TxOptions) (*fencedTx, error) {
	first := seqs[0]
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("fence %q: %w", first.name, err)
	}
	// The limit counts from here, not from the answer: the server may have locked
	// the row long before that arrives.
	began := time.Now()
	deadline := began.Add(c.cfg.FenceTimeout)
	dog := watch(conn.Conn().PgConn().Conn(), deadline)
	begin := &beginning{conn: conn.Conn(), opts: opts, others: seqs[1:], byFunction: c.byFunction.Load()}
	row, err := begin.fence(ctx, first, c.cfg.FenceTimeout)
	var from origin
	if err == nil {
		from, err = c.origin(ctx, begin.tx, row, began)
		if err == nil {
			return &fencedTx{
				Tx: begin.tx, conn: conn, dog: dog, client: c, seqs: seqs, origin: from, deadline: deadline,
			}, nil
		}
	}
	begin.abort(ctx)
	err = refusal(ctx, lockdb.New(conn), seqs[begin.failed], err)
	bit := giveBackWatched(ctx, conn, dog)
	if ctx.Err() == nil && (bit || !time.Now().Before(deadline)) { // the server's limit, perhaps
		return nil, c.timedOut(first.name, err)
	}
	return nil, err
}

// beginning runs the fence of one lease as the first statement of a transaction,
// and those of others behind it, in the round trip of its BEGIN, and leaves the
// transaction open.
type beginning struct {
	conn       *pgx.Conn
	opts       pgx.TxOptions
	others     []Sequencer
	byFunction bool // the role fences through gatepost.try_fence
	tx         pgx.Tx
	failed     int // which fence did not pass: 0 is the first one
}

// fenceRow is what the first fence tells of its transaction.
type fenceRow struct {
	xid         string
	serverStart time.Time
}

// fence begins the transaction.
func (b *beginning) fence(ctx context.Context, seq Sequencer, limit time.Duration) (fenceRow, error) {
	q := lockdb.New(b)
	if b.byFunction {
		row, err := q.LeaseFenceTryFirst(ctx, lockdb.LeaseFenceTryFirstParams{
			LimitMs: limit.Milliseconds(),
			Name:    seq.name, Slot: seq.slot, Token: seq.token, Nonce: seq.nonce,
		})
		if err == nil {
			err = seq.refusedAs(row.Verdict, row.Current)
		}
		return fenceRow{row.Xid, row.ServerStart.Time}, err
	}
	row, err := q.LeaseFenceFirst(ctx, lockdb.LeaseFenceFirstParams{
		LimitMs: limit.Milliseconds(), Sequencer: seq.String(),
		Name: seq.name, Slot: seq.slot, Token: seq.token, Nonce: seq.nonce,
	})
	if err == nil && !row.Live {
		err = errNotLive
	}
	return fenceRow{row.Xid, row.ServerStart.Time}, err
}

var _ lockdb.DBTX = (*beginning)(nil)

// errBadUse can't reach a user: a fence is a query of one row, and so is a release.
var errBadUse = errors.New("pglock: what is sent together with others is a query of one row")

func (b *beginning) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errBadUse
}

func (b *beginning) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errBadUse
}

func (b *beginning) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	batch := &pgx.Batch{}
	batch.BeginTx(b.opts)
	batch.Queue(sql, args...)
	for _, seq := range b.others {
		if b.byFunction {
			batch.Queue(lockdb.LeaseFenceTry, seq.name, seq.slot, seq.token, seq.nonce)
		} else {
			batch.Queue(lockdb.LeaseFence, seq.String(), seq.name, seq.slot, seq.token, seq.nonce)
		}
	}
	results := b.conn.SendBatch(ctx, batch)
	b.tx = results.Tx()
	return &beginningRow{beginning: b, results: results}
}

// abort rolls back what was begun, so that the connection can be used again.
func (b *beginning) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.tx.Rollback(ctx) // when it fails, pgx has closed the connection
}

type beginningRow struct {
	*beginning
	results pgx.BatchResults
}

// Scan reads the first fence's row, and the others' for itself.
func (r *beginningRow) Scan(dest ...any) error {
	_, err := r.results.Exec() // BEGIN
	if err == nil {
		err = r.results.QueryRow().Scan(dest...)
	}
	for i, seq := range r.others {
		if err != nil {
			break
		}
		if err = r.other(seq); err != nil {
			r.failed = i + 1
		}
	}
	if closeErr := r.results.Close(); err == nil {
		err = closeErr
	}
	return err
}

// other reads the row of a fence behind the first.
func (r *beginningRow) other(seq Sequencer) error {
	if r.byFunction {
		var row lockdb.LeaseFenceTryRow
		if err := r.results.QueryRow().Scan(&row.Verdict, &row.Current, &row.Xid, &row.Xids); err != nil {
			return err
		}
		return seq.refusedAs(row.Verdict, row.Current)
	}
	var live bool
	err := r.results.QueryRow().Scan(&live)
	if err == nil && !live {
		err = errNotLive
	}
	return err
}
