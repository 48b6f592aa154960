package idem_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// Of keys that rise no two can be equal, and nobody looks: so what doesn't rise must
// never be taken for it.
func TestCopyOnce_CountsKeysInAnyOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, c := range []struct {
		kinds string // of the key's columns a and b
		keys  [][2]any
		want  idem.Counts
	}{
		{"int, bigint", [][2]any{{"1", "9"}, {"1", "10"}, {"2", "1"}}, idem.Counts{Rows: 3, Inserted: 3}},
		{"int, bigint", [][2]any{{"1", "1"}, {"1", "1"}, {"1", "2"}}, idem.Counts{Rows: 3, Inserted: 2, Duplicate: 1}},
		{"int, bigint", [][2]any{{"1", "1"}, {"1", "01"}, {"1", "+1"}, {"1", " 1"}}, idem.Counts{Rows: 4, Inserted: 1, Duplicate: 3}},
		{"int, bigint", [][2]any{{"1", "2"}, {"2", "1"}, {"1", "2"}}, idem.Counts{Rows: 3, Inserted: 2, Duplicate: 1}},
		{"int, bigint", [][2]any{{"2", "1"}, {"1", "2"}, {"2", "1"}}, idem.Counts{Rows: 3, Inserted: 2, Duplicate: 1}},
		{"smallint, int", [][2]any{{int16(-2), -7}, {int16(-2), int32(-6)}, {"-2", int64(-6)}, {-1, "-9"}}, idem.Counts{Rows: 4, Inserted: 3, Duplicate: 1}},
		{"int, bigint", [][2]any{{new(1), "1"}, {new(1), "1"}}, idem.Counts{Rows: 2, Inserted: 1, Duplicate: 1}},
		{"numeric, int", [][2]any{{"1", "1"}, {"1.0", "1"}, {"2", "1"}}, idem.Counts{Rows: 3, Inserted: 2, Duplicate: 1}},
		{"char(3), int", [][2]any{{"1", "1"}, {"1 ", "1"}}, idem.Counts{Rows: 2, Inserted: 1, Duplicate: 1}},
		{"float8, int", [][2]any{{"9007199254740992", "1"}, {"9007199254740993", "1"}}, idem.Counts{Rows: 2, Inserted: 1, Duplicate: 1}},
	} {
		a, b, _ := strings.Cut(c.kinds, ", ")
		target := idem.Target{
			Table:   table(t, pool, fmt.Sprintf("note text, a %s, b %s, PRIMARY KEY (b, a)", a, b)),
			Columns: []string{"note", "a", "b"}, Key: []string{"a", "b"}, Compare: []string{"note"},
		}
		var rows [][]any
		for i, k := range c.keys {
			rows = append(rows, []any{fmt.Sprint(i), k[0], k[1]})
		}
		got, err := load(t.Context(), pool, target, rows)
		if err != nil {
			t.Fatalf("%s %v: %v", c.kinds, c.keys, err)
		}
		if got != c.want {
			t.Errorf("%s %v: counts = %+v, want %+v", c.kinds, c.keys, got, c.want)
		}
		slices.Reverse(rows) // all are there, and those behind one another differ or come before
		again, err := load(t.Context(), pool, target, rows)
		if err != nil || again.Inserted != 0 || again.Rows != again.Existed+again.Duplicate+again.Changed || again.Duplicate != c.want.Duplicate {
			t.Errorf("%s %v again: counts = %+v, %v", c.kinds, c.keys, again, err)
		}
	}
}

func TestCopyOnce_RefusesANullAmongKeysThatRise(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{Table: table(t, pool, "id int UNIQUE, body text"), Columns: []string{"id", "body"}, Key: []string{"id"}}
	_, err := load(t.Context(), pool, target, [][]any{{1, "a"}, {2, "b"}, {nil, "c"}, {4, "d"}})
	wantErr(t, err, idem.ErrInvalidKey)
}
