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
//  3. If it has one, it may have all, as in an import that is repeated. Where the keys are
//     consecutive numbers, their last is then in the place of the table's keys, counted
//     from their first, that it has in the chunk: the chunk is left out, and nothing is
//     written. Its values are not looked at, so not where they are to be compared.
//  4. Else, or if COPY fails so, the savepoint is undone, and this chunk and what follows
//     go through staging, which is exact for any keys.
//
// So are the counts: what went straight is Inserted, what was left out is Existed, and of
// the rest a key is left out that the table has. It may have been in a chunk of this call,
// but only where the keys stopped rising. Then it is a Duplicate: any key from a left out
// chunk's first to its last, since they were consecutive, and otherwise told from what a
// concurrent loader put between this call's keys by the subtransaction that wrote the row,
// which is a chunk's own: see ownSQL.
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
	outer    *savepoint // the first chunk's, which stays until the end
	spans    []span     // of the chunks that went, or are there
	rows     int64      // of them
	bytes    int        // of them
	copied   int        // chunks that went
	inserted int64      // rows of those
	left     [][]byte   // lines that were read, and didn't go
}

// run copies what goes straight. What doesn't is in left, and in the source.
func (s *straight) run(ctx context.Context) error {
	cur, next := new(chunk), new(chunk)
	s.fill(cur, new(atomic.Bool))
	for s.text.err == nil && cur.rows > 0 {
		settled, err := s.settle(ctx, cur, next)
		if err != nil {
			return err
		}
		if !settled {
			s.left = [][]byte{cur.lines, next.lines}
			break
		}
		s.spans, s.rows = append(s.spans, cur.span), s.rows+cur.rows
		cur, next = next, cur
		next.lines, next.rows, next.there = next.lines[:0], 0, false
	}
	return s.text.err
}

// settle copies a chunk, or leaves it out, and reads the next one. It is false where
// staging has to.
func (s *straight) settle(ctx context.Context, c, next *chunk) (settled bool, err error) {
	if s.text.keys.broken || s.copied >= s.chunks {
		return false, nil
	}
	free, err := s.free(ctx, c.span)
	if err != nil {
		return false, err
	}
	if free {
		return s.copyWhile(ctx, c, next)
	}
	if c.there, err = s.there(ctx, c); err != nil || !c.there {
		return false, err
	}
	s.bytes += len(c.lines)
	s.fill(next, new(atomic.Bool))
	return true, nil
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

// free says whether the table has none of the keys from the first to the last. It asks
// for the next key from the first on, in the index's order: one descent, whatever the
// table's statistics make of the range.
func (s *straight) free(ctx context.Context, keys span) (bool, error) {
	var taken bool
	err := s.tx.QueryRow(ctx, s.freeSQL(), keys.args()...).Scan(&taken)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	return !taken, err
}

// freeSQL compares to NULL where a column behind the first is NULL in that key, which the
// index has behind all that could be meant: there is none of those then.
func (s *straight) freeSQL() string {
	key := columnList("t", s.Key)
	return "SELECT coalesce((" + key + ") <= (" + s.params(len(s.Key)) + "), false)" +
		" FROM " + s.Table.Sanitize() + " AS t" +
		" WHERE (" + key + ") >= (" + s.params(0) + ")" +
		" ORDER BY " + key + " LIMIT 1"
}

// there says whether the table has all keys of a chunk, where they are consecutive: the
// first columns of the key are the same in all rows then, and the last one counts.
func (s *straight) there(ctx context.Context, c *chunk) (bool, error) {
	end := len(s.Key) - 1
	consecutive := slices.Equal(c.first[:end], c.last[:end]) && c.last[end]-c.first[end] == c.rows-1
	if !consecutive || len(s.Compare) > 0 {
		return false, nil
	}
	var there bool
	err := s.tx.QueryRow(ctx, s.thereSQL(), append(c.args(), c.rows-1)...).Scan(&there)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return there, err
}

// thereSQL reads as many keys as the chunk has, from its first on.
func (s *straight) thereSQL() string {
	key := columnList("t", s.Key)
	return "SELECT (" + key + ") = (" + s.params(len(s.Key)) + ")" +
		" FROM " + s.Table.Sanitize() + " AS t" +
		" WHERE (" + key + ") >= (" + s.params(0) + ")" +
		" ORDER BY " + key + " OFFSET $" + strconv.Itoa(2*len(s.Key)+1) + " LIMIT 1"
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
	first, name := s.outer == nil, savepointPart
	if first {
		name = savepointCopy
	}
	own, err := newSavepoint(ctx, s.tx, name)
	if err != nil {
		return false, err
	}
	if first {
		s.outer = own
	}
	tag, err := s.copyFrom(ctx, bytes.NewReader(c.lines), copySQL(s.Table, s.Columns))
	switch {
	case slices.Contains(forStaging, sqlState(err)):
		if first {
			s.outer = nil
		}
		return false, own.Rollback(ctx)
	case err != nil:
		return false, placed(err, s.Table, s.Table, s.rows)
	case tag.RowsAffected() != c.rows:
		return false, fmt.Errorf("%w: COPY counts %d of %d rows", ErrNotStored, tag.RowsAffected(), c.rows)
	}
	s.copied, s.inserted = s.copied+1, s.inserted+c.rows
	if first {
		return true, nil
	}
	return true, own.Commit(ctx)
}

// forStaging are the errors of a COPY that an INSERT of all rows may not have.
var forStaging = []string{stateUniqueViolation, stateExclusion, stateForeignKey}

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

// ownSQL says whether the key of a row t of the table came in a chunk of this call, with
// the arguments of ownArgs: whether it is one of a chunk that was left out, or the row was
// written by the subtransaction that wrote the last row of a chunk, and has a key of the
// chunk's. Without the latter a frozen row could pass, whose xmin is of four billion
// transactions ago; there was none between the chunk's keys. A chunk that was left out is
// one whatever a concurrent transaction makes of its last row.
func (s *straight) ownSQL() string {
	params, first, last, same := make([]string, 2*len(s.Key)), make([]string, len(s.Key)), make([]string, len(s.Key)), make([]string, len(s.Key))
	for i := range params {
		params[i] = "$" + strconv.Itoa(i+1) + "::bigint[]"
	}
	for i, k := range s.Key {
		first[i], last[i] = "first"+strconv.Itoa(i), "last"+strconv.Itoa(i)
		same[i] = qualified("o", k) + " = " + qualified("c", last[i])
	}
	params = append(params, "$"+strconv.Itoa(len(params)+1)+"::boolean[]")
	return "EXISTS (SELECT FROM unnest(" + strings.Join(params, ", ") + ") AS c (" + columnList("", slices.Concat(first, last)) + ", there)" +
		" LEFT JOIN " + s.Table.Sanitize() + " AS o ON " + strings.Join(same, " AND ") +
		" WHERE (c.there OR o.xmin = t.xmin)" +
		" AND (" + columnList("t", s.Key) + ") >= (" + columnList("c", first) + ")" +
		" AND (" + columnList("t", s.Key) + ") <= (" + columnList("c", last) + "))"
}

// ownArgs are the chunks' keys, an array for each column of the first ones, and then of
// the last ones; and whether they were there.
func (s *straight) ownArgs() []any {
	args := make([]any, 2*len(s.Key), 2*len(s.Key)+1)
	for i := range s.Key {
		var first, last []int64
		for _, c := range s.spans {
			first, last = append(first, c.first[i]), append(last, c.last[i])
		}
		args[i], args[len(s.Key)+i] = first, last
	}
	there := make([]bool, len(s.spans))
	for i, c := range s.spans {
		there[i] = c.there
	}
	return append(args, there)
}
