package idem

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// copyText is a source's rows in COPY's text format, each behind its place in the
// input, from 1. A string goes as it is, so that the server parses it; any other
// value goes through the codec of its column's type.
type copyText struct {
	types *pgtype.Map
	oids  []uint32
	rows  pgx.CopyFromSource
	keys  *ascent
	n     int64
	buf   []byte
	value []byte // of one value, kept for its memory
	done  bool
	err   error
}

// copyBuffer is how many bytes are gathered before they are sent on.
const copyBuffer = 64 << 10

func newCopyText(types *pgtype.Map, oids []uint32, keys *ascent, rows pgx.CopyFromSource) *copyText {
	return &copyText{types: types, oids: oids, keys: keys, rows: rows}
}

// Read gives whole rows while the buffer is small, and what is left of it.
func (c *copyText) Read(p []byte) (int, error) {
	for len(c.buf) < copyBuffer && !c.done && c.err == nil {
		if !c.rows.Next() {
			c.done, c.err = true, c.rows.Err()
			break
		}
		c.err = c.addRow()
	}
	if c.err != nil {
		return 0, c.err
	}
	if len(c.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.buf)
	c.buf = append(c.buf[:0], c.buf[n:]...)
	return n, nil
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
	c.buf = strconv.AppendInt(c.buf, c.n, 10)
	for i, v := range values {
		c.buf = append(c.buf, '\t')
		if err := c.addValue(c.oids[i], v); err != nil {
			return fmt.Errorf("row %d, value %d: %w", c.n, i+1, err)
		}
	}
	c.buf = append(c.buf, '\n')
	return nil
}

func (c *copyText) addValue(oid uint32, v any) error {
	var err error
	switch v := v.(type) {
	case nil:
		c.buf = append(c.buf, '\\', 'N')
		return nil
	case string:
		c.value = append(c.value[:0], v...)
	case int64:
		c.value = strconv.AppendInt(c.value[:0], v, 10)
	default:
		encoded, encodeErr := c.types.Encode(oid, pgtype.TextFormatCode, v, c.value[:0])
		if encodeErr == nil && encoded == nil { // a NULL of the value's own kind
			c.buf = append(c.buf, '\\', 'N')
			return nil
		}
		c.value, err = encoded, encodeErr
	}
	if err != nil {
		return err
	}
	return c.escape()
}

// errNUL names the one character that no text of PostgreSQL can hold.
var errNUL = errors.New("it has a NUL character, which PostgreSQL can't store")

// escape adds the value with the characters that COPY gives a meaning.
func (c *copyText) escape() error {
	for _, b := range c.value {
		switch b {
		case 0:
			return errNUL
		case '\\':
			c.buf = append(c.buf, '\\', '\\')
		case '\n':
			c.buf = append(c.buf, '\\', 'n')
		case '\r':
			c.buf = append(c.buf, '\\', 'r')
		case '\t':
			c.buf = append(c.buf, '\\', 't')
		default:
			c.buf = append(c.buf, b)
		}
	}
	return nil
}
