package idem_test

import (
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// falling is rows that go straight, 1, 3, 5 to 99, and then keys among them: 51 came
// before, 50 didn't.
func falling() [][]any {
	var rows [][]any
	for id := int64(1); id < 100; id += 2 {
		rows = append(rows, []any{id, "mine"})
	}
	return append(rows, []any{int64(51), "mine again"}, []any{int64(50), "mine"}, []any{int64(51), "and again"}, []any{int64(2), "mine"})
}

func TestCopyOnce_KnowsItsOwnRowsWhereTheKeysFall(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	target.Compare = []string{"body"}
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(falling()), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 54, Inserted: 52, Duplicate: 2})
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()+" WHERE body = 'mine'"); n != 52 {
		t.Errorf("%d rows are the first of their key, want 52", n)
	}
}

// Another loader's key between those that went straight is no key of this call.
func TestCopyOnce_TellsItsOwnRowsFromAConcurrentLoaders(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	target.Compare = []string{"body"}
	rows, next := falling(), 0
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromFunc(func() ([]any, error) {
		if next == len(rows) {
			return nil, nil
		}
		if next == 50 { // all that rises was read, and all but the last two chunks are copied
			other := [][]any{{int64(2), "mine"}, {int64(50), "another's"}}
			if _, err := load(t.Context(), pool, target, other); err != nil {
				return nil, err
			}
		}
		next++
		return rows[next-1], nil
	}), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 54, Inserted: 50, Duplicate: 2, Existed: 1, Changed: 1, FirstChanged: 52})
}
