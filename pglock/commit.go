package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// origin says which transaction it was, and on which server: a transaction id
// means nothing on another one, nor on another timeline of the same, nor after a crash.
type origin struct {
	xid   string
	began time.Time // before it had the id
	*server
}

// server is one start of a server that writes. What names it is read from a file,
// so it is asked once a start and not in each transaction.
type server struct {
	started          time.Time
	system, timeline string
}

// origin names the server that a fenced transaction runs on: one more round trip
// when it is another than last time.
func (c *Client) origin(ctx context.Context, tx pgx.Tx, row fenceRow, began time.Time) (origin, error) {
	if last := c.lastServer.Load(); last != nil && last.started.Equal(row.serverStart) {
		return origin{xid: row.xid, began: began, server: last}, nil
	}
	id, err := lockdb.New(tx).ServerIdentity(ctx)
	if err != nil {
		return origin{}, err
	}
	s := &server{started: row.serverStart, system: id.SystemIdentifier, timeline: id.Timeline}
	c.lastServer.Store(s)
	return origin{xid: row.xid, began: began, server: s}, nil
}

// resolvePoll is the time between two looks at a commit that is in progress.
const resolvePoll = 50 * time.Millisecond

// resolveCommit finds out, over a new connection, what became of a COMMIT that
// was not answered: nil when it committed, the cause when it did not, and
// ErrCommitUnknown when the database can't tell within 5 s.
func (c *Client) resolveCommit(ctx context.Context, from origin, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		var row lockdb.TransactionStatusRow
		err := c.onControl(ctx, func(conn *pgx.Conn) (err error) {
			row, err = inShortTx(conn).TransactionStatus(ctx, from.xid)
			return err
		})
		known, committed := from.outcome(row)
		switch {
		case err != nil: // asked again below
		case known && committed:
			return nil
		case known:
			return fmt.Errorf("commit was rolled back: %w", cause)
		case row.Status != "in progress":
			return fmt.Errorf("%w: %w", ErrCommitUnknown, cause)
		}
		select { // not cut short by Close: the answer is worth 5 s
		case <-time.After(resolvePoll):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrCommitUnknown, cause)
		}
	}
}

// outcome reads an answer that came just now, if it is from where the transaction ran.
func (o origin) outcome(row lockdb.TransactionStatusRow) (known, committed bool) {
	if row.Recovering || row.SystemIdentifier != o.system || row.Timeline != o.timeline {
		return false, false
	}
	crashed := time.Duration(row.UpUs)*time.Microsecond < time.Since(o.began)
	committed = row.Status == "committed" && !crashed // else it may be another's
	return committed || row.Status == "aborted", committed
}
