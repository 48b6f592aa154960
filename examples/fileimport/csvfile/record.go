package csvfile

import (
	"bytes"
	"strings"
)

// Record is one record of the file. It is the caller's: a later Next changes nothing in it.
type Record struct {
	// Line is the physical line on which the record starts. The first line of the file is 1.
	Line int64

	// Raw is the record as the file has it, quotes included, without its line end.
	Raw []byte

	// Fields are the record's fields in order, at least one.
	Fields []Field
}

// Field is one field of a record.
type Field struct {
	// Value is the text, without the quotes around it and with "" inside them as ".
	Value string

	// Quoted tells "" (true) from nothing at all (false); to a database the one is an empty
	// string and the other NULL.
	Quoted bool
}

// slabSize is how many fields are allocated at once.
const slabSize = 512

// maker builds records that share no memory with the window.
type maker struct {
	free []Field
}

// record copies raw once as text and once as bytes, and cuts the text into the fields that
// marks describe.
func (m *maker) record(line int64, raw []byte, marks []mark) Record {
	text := string(raw)
	fields := m.fields(len(marks))
	for i, k := range marks {
		value := text[k.start:k.end]
		if k.doubled {
			value = undouble(value)
		}
		fields[i] = Field{Value: value, Quoted: k.quoted}
	}
	return Record{Line: line, Raw: bytes.Clone(raw), Fields: fields}
}

// fields takes n fields from the slab. Their capacity ends with them, so that a caller's
// append can't reach into the next record.
func (m *maker) fields(n int) []Field {
	if len(m.free) < n {
		m.free = make([]Field, max(n, slabSize))
	}
	f := m.free[:n:n]
	m.free = m.free[n:]
	return f
}

// undouble turns each "" of a quoted field into ".
func undouble(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for {
		i := strings.IndexByte(text, '"')
		if i < 0 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i+1])
		text = text[i+2:]
	}
}
