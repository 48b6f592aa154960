package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// waitLock is the number of a name's advisory lock, which a release has until it is
// committed, and on which a waiter waits before it looks AGAIN: then either the release
// has seen the waiter's row, and wakes it, or the waiter sees the release. The statement
// that wakes is sent only to those who wait, and nothing is lost between the two.
func waitLock(name string) int64 {
	sum := sha256.Sum256([]byte("gatepost waiters\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// heldOff runs a query of one row behind WaiterHoldOff, in one transaction and one round
// trip, without BEGIN and COMMIT: the two are sent together.
type heldOff struct {
	conn *pgx.Conn
	lock int64
	had  bool // nobody begins to wait at this moment
}

var _ lockdb.DBTX = (*heldOff)(nil)

func (*heldOff) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errBadUse
}

func (*heldOff) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errBadUse }

func (h *heldOff) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	batch := &pgx.Batch{}
	batch.Queue(lockdb.WaiterHoldOff, h.lock)
	batch.Queue(sql, args...)
	return &heldOffRow{heldOff: h, results: h.conn.SendBatch(ctx, batch)}
}

type heldOffRow struct {
	*heldOff
	results pgx.BatchResults
}

// Scan succeeds when both were committed.
func (r *heldOffRow) Scan(dest ...any) error {
	err := r.results.QueryRow().Scan(&r.had)
	if err == nil {
		err = r.results.QueryRow().Scan(dest...)
	}
	if closeErr := r.results.Close(); err == nil {
		err = closeErr
	}
	return err
}
