package idem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// copyText is a source's rows in COPY's text format, a line each. A string goes as it
// is, so that the server parses it; any other value goes through the codec of its
// column's type.
type copyText struct {
	types *pgtype.Map
	oids  []uint32
	rows  pgx.CopyFromSource
	keys  *ascent
	n     int64  // of the rows read
	buf   []byte // what add adds to
	value []byte // of one value, kept for its memory
	done  bool   // there are no more
	err   error  // the source's, or of a row
}

// copyBuffer is how many bytes are gathered before they are sent on.
const copyBuffer = 64 << 10

func newCopyText(types *pgtype.Map, oids []uint32, keys *ascent, rows pgx.CopyFromSource) *copyText {
	return &copyText{types: types, oids: oids, keys: keys, rows: rows}
}

// add adds the next row to buf. It is false after the last one, and on an error, which the
// source's exit is too: in the goroutines that read, a panic would end the process.
func (c *copyText) add() bool {
	if c.done || c.err != nil {
		return false
	}
	returned := false
	defer func() {
		if !returned {
			c.err = &sourceExit{recover()}
		}
	}()
	if c.rows.Next() {
		c.err = c.addRow()
	} else {
		c.done, c.err = true, c.rows.Err()
	}
	returned = true
	return !c.done && c.err == nil
}

// sourceExit is of a source that didn't return: what it panicked with, or nil by
// runtime.Goexit, as a test's FailNow has it.
type sourceExit struct{ value any }

func (e *sourceExit) Error() string { return fmt.Sprintf("the source exited: %v", e.value) }

// goOn does in this goroutine what the source did.
func (e *sourceExit) goOn() {
	if e.value == nil {
		runtime.Goexit()
	}
	panic(e.value)
}

func (c *copyText) addRow() error {
	values, err := c.rows.Values()
	if err != nil {
		return err
	}
	c.n++
	if len(values) != len(c.oids) {
		return fmt.Errorf("row %d has %d values for %d columns", c.n, len(values), len(c.oids))
	}
	c.keys.add(values)
	for i, v := range values {
		if i > 0 {
			c.buf = append(c.buf, '\t')
		}
		if err := c.addValue(c.oids[i], v); err != nil {
			return fmt.Errorf("row %d, value %d: %w", c.n, i+1, err)
		}
	}
	c.buf = append(c.buf, '\n')
	return nil
}

func (c *copyText) addValue(oid uint32, v any) (err error) {
	switch v := v.(type) {
	case nil:
		c.buf = append(c.buf, '\\', 'N')
	case string:
		c.buf, err = appendEscaped(c.buf, v)
	case int64:
		c.buf = strconv.AppendInt(c.buf, v, 10)
	default:
		encoded, encodeErr := c.types.Encode(oid, pgtype.TextFormatCode, v, c.value[:0])
		switch {
		case encodeErr != nil:
			return encodeErr
		case encoded == nil: // a NULL of the value's own kind
			c.buf = append(c.buf, '\\', 'N')
			return nil
		}
		c.value = encoded
		c.buf, err = appendEscaped(c.buf, encoded)
	}
	return err
}

// errNUL names the one character that no text of PostgreSQL can hold.
var errNUL = errors.New("it has a NUL character, which PostgreSQL can't store")

// escapes has what stands behind a backslash for a character that COPY gives a meaning.
var escapes = [256]byte{0: '0', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't'}

// appendEscaped appends a value with those characters escaped.
func appendEscaped[T string | []byte](buf []byte, value T) ([]byte, error) {
	done := 0
	for i := range len(value) {
		escape := escapes[value[i]]
		switch escape {
		case 0:
			continue
		case '0':
			return buf, errNUL
		}
		buf = append(append(buf, value[done:i]...), '\\', escape)
		done = i + 1
	}
	return append(buf, value[done:]...), nil
}

// numberedText reads lines, each behind its row's place in the input: first those that
// were read from the source already, then the source's others.
type numberedText struct {
	*copyText
	lines [][]byte
	n     int64 // the place of the last one
	out   []byte
}

// Read gives whole rows while the buffer is small, and what is left of it.
func (t *numberedText) Read(p []byte) (int, error) {
	for len(t.out) < copyBuffer && t.more() {
		end := bytes.IndexByte(t.lines[0], '\n') + 1
		t.n++
		t.out = append(strconv.AppendInt(t.out, t.n, 10), '\t')
		t.out = append(t.out, t.lines[0][:end]...)
		t.lines[0] = t.lines[0][end:]
	}
	if t.err != nil {
		return 0, t.err
	}
	if len(t.out) == 0 {
		return 0, io.EOF
	}
	n := copy(p, t.out)
	t.out = append(t.out[:0], t.out[n:]...)
	return n, nil
}

// more says whether there is a line.
func (t *numberedText) more() bool {
	for len(t.lines) > 0 && len(t.lines[0]) == 0 {
		t.lines = t.lines[1:]
	}
	if len(t.lines) > 0 {
		return true
	}
	t.buf = t.buf[:0]
	for len(t.buf) < copyBuffer && t.add() {
	}
	t.lines = append(t.lines, t.buf)
	return t.err == nil && len(t.buf) > 0
}
