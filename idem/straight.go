package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// straight copies chunks of the input into the target itself, for as long as that gives
// the counts that staging would give.
//
// What it does with a chunk, whose keys are integers that rise from row to row, behind
// those of the chunk before:
//
//  1. It asks whether the table has a key from the chunk's first to its last. This is
//     only a look: it spares an import that is repeated a COPY that fails, with its
//     ERROR in the server's log and its dead rows.
//  2. If it has none, COPY, in a savepoint. That there is none is for the unique index to
//     say: whoever inserts one of these keys at the same time has it first, and COPY
//     fails with 23505 when that one commits, or comes second, and waits for this
//     transaction. COPY leaves nothing out: if it succeeds each row of the chunk is new,
//     and was inserted.
//  3. If the look finds a key, or COPY fails so, the savepoint is undone, and this chunk
//     and what follows go through staging, which is exact for any keys.
//
// So are the counts: what went straight is Inserted, and of the rest a key is left out
// that the table has. It may have it from a chunk of this call, but only where the keys
// stopped rising. Then it is a Duplicate, and told from what a concurrent loader put
// between this call's keys by the subtransaction that wrote the row, which is a chunk's
// own: see ownSQL.
//
// Locks are taken in the order of the keys, as staging takes them, so two loaders wait
// for one another in one direction; but not where the keys of an input of several chunks
// fall back: one of two such loaders may get 40P01, which is ErrRetryTx.
//
// While a chunk is copied the next one is read, so that the server needn't wait, and no
// COPY is open while the source has nothing to give: where its reader was stopped, the
// server's idle_in_transaction_session_timeout ends the transaction.
type straight struct {
	*loading
	pace
	outer pgx.Tx   // the first chunk's savepoint, which stays until the end
	spans []span   // of the chunks that went
	rows  int64    // of them
	bytes int      // of them
	left  [][]byte // lines that were read, and didn't go
}

// pace is how large chunks are.
type pace struct {
	least, most int           // bytes of a chunk: the first one, and any
	chunks      int           // that go straight, at most
	patience    time.Duration // for a source to fill one
}

// usualPace has chunks grow with what went, so that a million rows of 60 bytes are some
// thirty. Each is a subtransaction, and with more than 64 of them in a transaction
// PostgreSQL looks up on disk, for each reader of the database, what belongs to which.
// Two chunks are in memory. A source that is slow gives smaller ones, lest the connection
// is idle in its transaction for as long as a whole one takes.
var usualPace = pace{least: 256 << 10, most: 8 << 20, chunks: 48, patience: 2 * time.Second}

// span is the keys of a chunk that went straight.
type span struct{ first, last []int64 }

// chunk is a part of the input.
type chunk struct {
	span
	lines []byte
	rows  int64
}

// run copies what goes straight. What doesn't is in left, and in the source.
func (s *straight) run(ctx context.Context) error {
	cur, next := new(chunk), new(chunk)
	s.fill(cur, new(atomic.Bool))
	for s.text.err == nil && cur.rows > 0 {
		free, err := s.goes(ctx, cur)
		if err == nil && free {
			free, err = s.copyWhile(ctx, cur, next)
		}
		if err != nil {
			return err
		}
		if !free {
			s.left = [][]byte{cur.lines, next.lines}
			break
		}
		cur, next = next, cur
		next.lines, next.rows = next.lines[:0], 0
	}
	return s.text.err
}

// goes says whether a chunk may go straight.
func (s *straight) goes(ctx context.Context, c *chunk) (bool, error) {
	if s.text.keys.broken || len(s.spans) == s.chunks {
		return false, nil
	}
	return s.free(ctx, c.span)
}

// copyWhile copies a chunk while the next one is read.
func (s *straight) copyWhile(ctx context.Context, c, next *chunk) (copied bool, err error) {
	s.bytes += len(c.lines)
	var reading sync.WaitGroup
	var enough atomic.Bool
	reading.Go(func() { s.fill(next, &enough) })
	copied, err = s.copy(ctx, c)
	if !copied {
		enough.Store(true)
	}
	reading.Wait()
	return copied, err
}

// fill reads a chunk, until it is large, or has enough, or its keys no longer rise.
func (s *straight) fill(c *chunk, enough *atomic.Bool) {
	impatient := time.AfterFunc(s.patience, func() { enough.Store(true) })
	defer impatient.Stop()
	t, limit := s.text, min(max(s.least, s.bytes/6), s.most)
	t.buf = c.lines[:0]
	for len(t.buf) < limit && !t.keys.broken && (c.rows == 0 || !enough.Load()) && t.add() {
		if c.rows++; c.rows == 1 {
			c.first = slices.Clone(t.keys.last)
		}
	}
	c.last = slices.Clone(t.keys.last)
	c.lines, t.buf = t.buf, nil
}

// free says whether the table has none of the keys from the first to the last. It asks
// for the next key from the first on, in the index's order: one descent, whatever the
// table's statistics make of the range.
func (s *straight) free(ctx context.Context, keys span) (bool, error) {
	args := make([]any, 0, 2*len(s.Key))
	for _, k := range slices.Concat(keys.first, keys.last) {
		args = append(args, k)
	}
	var taken bool
	err := s.tx.QueryRow(ctx, s.freeSQL(), args...).Scan(&taken)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	return !taken, err
}

func (s *straight) freeSQL() string {
	key := columnList("t", s.Key)
	return "SELECT (" + key + ") <= (" + s.params(len(s.Key)) + ")" +
		" FROM " + s.Table.Sanitize() + " AS t" +
		" WHERE (" + key + ") >= (" + s.params(0) + ")" +
		" ORDER BY " + key + " LIMIT 1"
}

// params is a key as parameters, behind so many others.
func (s *straight) params(behind int) string {
	params := make([]string, len(s.Key))
	for i := range params {
		params[i] = "$" + strconv.Itoa(behind+i+1) + "::bigint"
	}
	return strings.Join(params, ", ")
}

// copy copies a chunk in a savepoint. It is false, and the savepoint undone, where a
// concurrent loader was faster, another constraint of the table has to speak, or a row
// refers to one that comes later: staging, which inserts all at once, finds out which it
// is.
func (s *straight) copy(ctx context.Context, c *chunk) (bool, error) {
	first := s.outer == nil
	savepoint, err := s.within().Begin(ctx)
	if err != nil {
		return false, err
	}
	if first {
		s.outer = savepoint
	}
	tag, err := s.tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(c.lines), copySQL(s.Table, s.Columns))
	switch {
	case slices.Contains(forStaging, sqlState(err)):
		if first {
			s.outer = nil
		}
		return false, savepoint.Rollback(ctx)
	case err != nil:
		return false, placed(err, s.Table, s.Table, s.rows)
	case tag.RowsAffected() != c.rows:
		return false, fmt.Errorf("%w: COPY counts %d of %d rows", ErrNotStored, tag.RowsAffected(), c.rows)
	}
	s.spans, s.rows = append(s.spans, c.span), s.rows+c.rows
	if first {
		return true, nil
	}
	return true, savepoint.Commit(ctx)
}

// forStaging are the errors of a COPY that an INSERT of all rows may not have.
var forStaging = []string{stateUniqueViolation, stateExclusion, stateForeignKey}

// within is the transaction that the next savepoint is in.
func (s *straight) within() pgx.Tx {
	if s.outer != nil {
		return s.outer
	}
	return s.tx
}

// end keeps what went straight, or, after an error, undoes it.
func (s *straight) end(ctx context.Context, err error) error {
	if s.outer == nil {
		return err
	}
	if err == nil {
		return s.outer.Commit(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = s.outer.Rollback(ctx) // when it fails, the transaction is aborted or its connection gone
	return err
}

// ownSQL says whether a row t of the table went straight in this call, with the arguments
// of ownArgs: whether it was written by the subtransaction that wrote the last row of a
// chunk, and has a key of the chunk's. Without the latter a frozen row could pass, whose
// xmin is of four billion transactions ago; there was none between the chunk's keys.
func (s *straight) ownSQL() string {
	params, first, last, same := make([]string, 2*len(s.Key)), make([]string, len(s.Key)), make([]string, len(s.Key)), make([]string, len(s.Key))
	for i := range params {
		params[i] = "$" + strconv.Itoa(i+1) + "::bigint[]"
	}
	for i, k := range s.Key {
		first[i], last[i] = "first"+strconv.Itoa(i), "last"+strconv.Itoa(i)
		same[i] = qualified("o", k) + " = " + qualified("c", last[i])
	}
	return "EXISTS (SELECT FROM unnest(" + strings.Join(params, ", ") + ") AS c (" + columnList("", slices.Concat(first, last)) + ")" +
		" JOIN " + s.Table.Sanitize() + " AS o ON " + strings.Join(same, " AND ") +
		" WHERE o.xmin = t.xmin" +
		" AND (" + columnList("t", s.Key) + ") >= (" + columnList("c", first) + ")" +
		" AND (" + columnList("t", s.Key) + ") <= (" + columnList("c", last) + "))"
}

// ownArgs are the chunks' keys, an array for each column of the first ones, and then of
// the last ones.
func (s *straight) ownArgs() []any {
	args := make([]any, 2*len(s.Key))
	for i := range s.Key {
		var first, last []int64
		for _, c := range s.spans {
			first, last = append(first, c.first[i]), append(last, c.last[i])
		}
		args[i], args[len(s.Key)+i] = first, last
	}
	return args
}
