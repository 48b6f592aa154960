package idem

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What can't be told apart from outside, or not without a database.
var (
	EncodeHeader = encodeHeader
	DecodeHeader = decodeHeader
	ValidateKey  = Key.validate
	Lock         = Key.lock
	Placed       = placed

	AsLockTimeout = asLockTimeout
	Outliving     = outliving
)

// Granted is an attempt that was asked for at a moment, without a heartbeat and without
// a database.
func Granted(ctx context.Context, s *Store, sent time.Time) *Attempt {
	return (&call{Store: s}).granted(ctx, "", false, sent)
}

// Deadline is until when the attempt is trusted.
func (a *Attempt) Deadline() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deadline
}

// Extend counts a renewal that was sent at a moment.
func (a *Attempt) Extend(sent time.Time) { a.extend(sent) }

// End is what Release does before it asks the database.
func (a *Attempt) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finishLocally(ErrEnded)
}

// Lapse is what the timer does.
func (a *Attempt) Lapse() { a.lapse() }

// Pinned runs a call that decides by the row.
func (a *Attempt) Pinned(fn func() error) error { return a.pinned(fn) }

// LookFirst decides whether the next call of Do looks for a reply before it claims.
func LookFirst(s *Store, first bool) {
	s.forecast.looks.Store(map[bool]int64{true: 1}[first])
}

// RenewAtOnce has a store renew at most so many attempts in a statement. It is called
// before the first one begins.
func RenewAtOnce(s *Store, n int) { s.beat.atOnce = n }

// CopyInChunks is CopyOnce with chunks of so many bytes, and so many of them that go
// straight.
func CopyInChunks(ctx context.Context, tx pgx.Tx, t Target, rows pgx.CopyFromSource, size, chunks int) (Counts, error) {
	return copyOnce(ctx, tx, t, rows, pace{least: size, most: size, chunks: chunks, patience: time.Minute})
}

// ChunksOf says how many rows each chunk has of a source of bigints.
func ChunksOf(rows pgx.CopyFromSource) (sizes []int64) {
	l := &loading{Target: Target{Columns: []string{"id"}, Key: []string{"id"}}, oids: []uint32{pgtype.Int8OID}}
	l.text = newCopyText(pgtype.NewMap(), l.oids, newAscent(l.Target, l.oids), rows)
	s := &straight{loading: l, pace: usualPace}
	for !l.text.done {
		var c chunk
		s.fill(&c, new(atomic.Bool))
		s.bytes += len(c.lines)
		sizes = append(sizes, c.rows)
	}
	return sizes
}
