package idem_test

import (
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// at is rows with the keys of a file's lines: pairs of file and line.
func at(body string, keys ...[2]int) (rows [][]any) {
	for _, k := range keys {
		rows = append(rows, []any{k[0], k[1], body})
	}
	return rows
}

// What is taken for all there is all there, and counts as that: in chunks that are all of
// the input, whose keys have gaps, belong to two files, or come again.
func TestCopyOnce_LeavesOutWhatIsAllThere(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		there, rows [][]any
		size        int // of a chunk
		want        idem.Counts
	}{
		"all": {
			lines(1, 20, "body"), lines(1, 20, "body"), 60,
			idem.Counts{Rows: 20, Existed: 20},
		},
		"more than all": {
			lines(0, 30, "body"), lines(1, 20, "body"), 60,
			idem.Counts{Rows: 20, Existed: 20},
		},
		"and new ones": {
			lines(1, 20, "body"), lines(1, 40, "body"), 60,
			idem.Counts{Rows: 40, Inserted: 20, Existed: 20},
		},
		"but one": {
			append(lines(1, 9, "body"), lines(11, 21, "body")...), lines(1, 20, "body"), 1000,
			idem.Counts{Rows: 20, Inserted: 1, Existed: 19},
		},
		"as many others": {
			at("body", [2]int{1, 1}, [2]int{1, 2}, [2]int{1, 5}), at("body", [2]int{1, 1}, [2]int{1, 3}, [2]int{1, 5}), 1000,
			idem.Counts{Rows: 3, Inserted: 1, Existed: 2},
		},
		"as many others, of two files": {
			at("body", [2]int{1, 5}, [2]int{1, 6}, [2]int{2, 7}), at("body", [2]int{1, 5}, [2]int{1, 9}, [2]int{2, 7}), 1000,
			idem.Counts{Rows: 3, Inserted: 1, Existed: 2},
		},
		"and again": {
			lines(1, 20, "body"), append(lines(1, 20, "body"), lines(5, 25, "body")...), 60,
			idem.Counts{Rows: 41, Inserted: 5, Existed: 20, Duplicate: 16},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			target := keyed(t, pool)
			if len(c.rows[0]) == 3 {
				target = idem.Target{
					Table:   table(t, pool, "file int, line bigint, body text, PRIMARY KEY (file, line)"),
					Columns: []string{"file", "line", "body"}, Key: []string{"file", "line"},
				}
			}
			for _, row := range c.there { // by a transaction each
				if _, err := load(t.Context(), pool, target, [][]any{row}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(c.rows), c.size, 100)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, c.want)
			wantRows(t, pool, target, len(c.there)+int(c.want.Inserted))
		})
	}
}

// A chunk that was left out stays a part of the input, also when its last row is deleted
// before its other keys come again.
func TestCopyOnce_KnowsWhatItLeftOutWhenThatIsDeleted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	if _, err := load(t.Context(), pool, target, lines(1, 3, "body")); err != nil {
		t.Fatal(err)
	}
	rows, next := append(lines(1, 3, "body"), lines(2, 2, "body")...), 0
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromFunc(func() ([]any, error) {
		if next++; next == 4 {
			if _, err := pool.Exec(t.Context(), "DELETE FROM "+target.Table.Sanitize()+" WHERE id = 3"); err != nil {
				return nil, err
			}
		}
		if next > len(rows) {
			return nil, nil
		}
		return rows[next-1], nil
	}), 27, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 4, Existed: 3, Duplicate: 1})
}

// Their values are not looked at, but where they are to be compared.
func TestCopyOnce_DoesNotReadWhatIsAllThere(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table: table(t, pool, "id int PRIMARY KEY, amount numeric"), Columns: []string{"id", "amount"}, Key: []string{"id"},
	}
	rows := func(amount string) [][]any { return [][]any{{1, "1.00"}, {2, amount}} }
	if _, err := load(t.Context(), pool, target, rows("2.00")); err != nil {
		t.Fatal(err)
	}
	got, err := load(t.Context(), pool, target, rows("no number"))
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 2, Existed: 2})
	target.Compare = []string{"amount"}
	if _, err := load(t.Context(), pool, target, rows("no number")); !refusedIn("COPY")(err) {
		t.Errorf("%v, want the value to be refused where it is compared", err)
	}
}
