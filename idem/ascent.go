package idem

import (
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"
)

// ascent finds out whether the keys of an input rise from row to row, as those of a
// file's lines do: then no two are equal and none is NULL, and the server need not be
// asked. Only of integers: which values of other types are equal is for PostgreSQL to
// say.
type ascent struct {
	places []int // of the key's columns in a row
	last   []int64
	begun  bool
	broken bool
}

func newAscent(t Target, oids []uint32) *ascent {
	a := &ascent{last: make([]int64, len(t.Key))}
	for _, k := range t.Key {
		i := slices.Index(t.Columns, k)
		a.places = append(a.places, i)
		switch oids[i] {
		case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		default: // a domain over one of them, too
			a.broken = true
		}
	}
	return a
}

// add looks at a row.
func (a *ascent) add(values []any) {
	if a.broken {
		return
	}
	higher := !a.begun
	for i, place := range a.places {
		n, ok := integer(values[place])
		if !ok || !higher && n < a.last[i] {
			a.broken = true
			return
		}
		higher = higher || n > a.last[i]
		a.last[i] = n
	}
	a.begun, a.broken = true, !higher
}

// integer is the number that PostgreSQL reads from a value, if it is sure to be one. What
// is out of the column's range COPY refuses.
func integer(value any) (int64, bool) {
	switch v := value.(type) {
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	case int:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	default:
		return 0, false
	}
}
