package idem_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// copyKey is the key of a row of the model, as a file and its lines give it.
type copyKey struct{ file, line int64 }

// copyModel is what CopyOnce promises, without chunks, staging or SQL.
type copyModel struct {
	table   map[copyKey]string
	compare bool
}

func (m *copyModel) load(rows [][]any) (counts idem.Counts) {
	before, seen := maps.Clone(m.table), map[copyKey]bool{}
	for i, r := range rows {
		key, body := copyKey{r[1].(int64), r[0].(int64)}, r[2].(string)
		there, existed := before[key]
		counts.Rows++
		switch {
		case seen[key]:
			counts.Duplicate++
		case existed && m.compare && there != body:
			counts.Changed++
			if counts.FirstChanged == 0 {
				counts.FirstChanged = int64(i + 1)
			}
		case existed:
			counts.Existed++
		default:
			counts.Inserted++
			m.table[key] = body
		}
		seen[key] = true
	}
	return counts
}

// drawRows is rows (line, file, body) whose keys mostly rise.
func drawRows(t *rapid.T) [][]any {
	var rows [][]any
	key := copyKey{file: 1}
	for range rapid.IntRange(0, 60).Draw(t, "rows") {
		switch step := rapid.IntRange(0, 40).Draw(t, "step"); {
		case step == 0 && len(rows) > 0: // one that came before, or among those
			key.line = rapid.Int64Range(0, key.line).Draw(t, "line")
		case step == 1 && key.file > 1:
			key.file--
		case step < 5:
			key.file, key.line = key.file+1, 0
		case step == 6 && len(rows) > 0: // the same
		default:
			key.line += int64(1 + step%3)
		}
		rows = append(rows, []any{key.line, key.file, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "body")})
	}
	return rows
}

// Whatever the order, the chunks and the conflicts are, also with a loader that commits
// in the middle, the counts and the table are those of the model.
func TestCopyOnce_CountsLikeItsModel(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rapid.Check(t, func(rt *rapid.T) {
		target := idem.Target{
			Table:   table(t, pool, "file int, line bigint, body text, PRIMARY KEY (file, line)"),
			Columns: []string{"line", "file", "body"}, Key: []string{"line", "file"},
		}
		defer exec(t, pool, "DROP TABLE "+target.Table.Sanitize())
		m := &copyModel{table: map[copyKey]string{}, compare: rapid.Bool().Draw(rt, "compare")}
		if m.compare {
			target.Compare = []string{"body"}
		}
		for range rapid.IntRange(1, 3).Draw(rt, "loads") {
			rows := drawRows(rt)
			at := rapid.IntRange(0, len(rows)).Draw(rt, "a concurrent loader comes at")
			others := fresh(drawRows(rt), rows[:at])
			size, chunks := rapid.IntRange(1, 300).Draw(rt, "size"), rapid.IntRange(0, 8).Draw(rt, "chunks")

			next := 0
			got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromFunc(func() ([]any, error) {
				if next == at {
					if _, err := load(t.Context(), pool, idem.Target{Table: target.Table, Columns: target.Columns, Key: target.Key}, others); err != nil {
						return nil, err
					}
				}
				if next++; next > len(rows) {
					return nil, nil
				}
				return rows[next-1], nil
			}), size, chunks)
			if err != nil {
				rt.Fatal(err)
			}
			m.load(others)
			if want := m.load(rows); got != want {
				rt.Fatalf("counts = %+v, want %+v", got, want)
			}
			wantTable(t, rt, pool, target, m)
		}
	})
}

// fresh is those of rows whose keys are not among others'.
func fresh(rows, others [][]any) [][]any {
	return slices.DeleteFunc(rows, func(r []any) bool {
		return slices.ContainsFunc(others, func(o []any) bool { return o[0] == r[0] && o[1] == r[1] })
	})
}

func wantTable(t *testing.T, rt *rapid.T, pool *pgxpool.Pool, target idem.Target, m *copyModel) {
	t.Helper()
	var want []string
	for key, body := range m.table {
		want = append(want, fmt.Sprintf("%03d/%04d %s", key.file, key.line, body))
	}
	slices.Sort(want)
	got := value[[]string](t, pool, "SELECT coalesce(array_agg(to_char(file, 'FM000') || '/' || to_char(line, 'FM0000') || ' ' || body ORDER BY file, line), '{}') FROM "+target.Table.Sanitize())
	if !slices.Equal(got, want) {
		rt.Fatalf("the table has %q, want %q", got, want)
	}
}
