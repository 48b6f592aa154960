package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lines makes rows (id, body) with the ids from first to last.
func lines(first, last int, body string) [][]any {
	var rows [][]any
	for id := first; id <= last; id++ {
		rows = append(rows, []any{int64(id), fmt.Sprintf("%s %d", body, id)})
	}
	return rows
}

// load commits one CopyOnce.
func load(ctx context.Context, pool *pgxpool.Pool, target idem.Target, rows [][]any) (counts idem.Counts, err error) {
	err = pgx.BeginTxFunc(ctx, pool, orReadCommitted(pgx.TxOptions{}), func(tx pgx.Tx) error {
		counts, err = idem.CopyOnce(ctx, tx, target, pgx.CopyFromRows(rows))
		return err
	})
	return counts, err
}

func wantCounts(t *testing.T, got, want idem.Counts) {
	t.Helper()
	if got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	if got.Rows != got.Inserted+got.Existed+got.Duplicate+got.Changed {
		t.Errorf("counts don't add up: %+v", got)
	}
}

func keyed(t *testing.T, pool *pgxpool.Pool) idem.Target {
	t.Helper()
	return idem.Target{
		Table:   table(t, pool, "id bigint PRIMARY KEY, body text"),
		Columns: []string{"id", "body"}, Key: []string{"id"},
	}
}

func TestCopyOnce_SecondTimeInsertsNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	for _, want := range []idem.Counts{{Rows: 500, Inserted: 500}, {Rows: 500, Existed: 500}} {
		got, err := load(t.Context(), pool, target, lines(1, 500, "body"))
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()); n != 500 {
		t.Errorf("%d rows, want 500", n)
	}
}

func TestCopyOnce_FirstOfEqualKeysCounts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	rows := [][]any{{int64(2), "two"}, {int64(1), "first"}, {int64(1), "second"}, {int64(2), "two again"}, {int64(1), "third"}}
	got, err := load(t.Context(), pool, target, rows)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 5, Inserted: 2, Duplicate: 3})
	all := value[string](t, pool, "SELECT string_agg(body, ',' ORDER BY id) FROM "+target.Table.Sanitize())
	if all != "first,two" {
		t.Errorf("table has %q, want the first of each key", all)
	}
}

func TestCopyOnce_ConcurrentLoadersShareTheRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	const loaders, size, step = 8, 1000, 250 // each overlaps its neighbours

	var mu sync.Mutex
	var sum idem.Counts
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			got, err := load(t.Context(), pool, target, lines(i*step+1, i*step+size, "body"))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Rows += got.Rows
			sum.Inserted += got.Inserted
			sum.Existed += got.Existed
		})
	}
	wg.Wait()
	const distinct = (loaders-1)*step + size
	wantCounts(t, sum, idem.Counts{Rows: loaders * size, Inserted: distinct, Existed: loaders*size - distinct})
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()); n != distinct {
		t.Errorf("%d rows, want %d", n, distinct)
	}
}

// A loader that looked before the others committed finds nothing, and is stopped by the
// constraint: at the COPY into the table, then at the plain INSERT, and last at the one
// that may skip.
func TestCopyOnce_LosesToLoadersThatCommitMeanwhile(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.URL(t)+"&pool_max_conns=6")
	target := keyed(t, pool)
	var others [3]pgx.Tx
	for i, rows := range [][][]any{lines(1, 100, "first"), lines(120, 129, "first"), lines(140, 200, "first")} {
		others[i] = begin(t, pool, pgx.TxOptions{})
		if _, err := idem.CopyOnce(t.Context(), others[i], target, pgx.CopyFromRows(rows)); err != nil {
			t.Fatal(err)
		}
	}
	second := make(chan error, 1)
	var got idem.Counts
	go func() {
		var err error
		got, err = load(t.Context(), pool, target, lines(51, 150, "second"))
		second <- err
	}()
	for i, wait := range []string{"COPY", "NOT EXISTS", "DO NOTHING"} {
		waitForLockWait(t, pool, target.Table.Sanitize(), wait)
		if err := others[i].Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 29, Existed: 71})
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()+" WHERE body LIKE 'first%'"); n != 171 {
		t.Errorf("%d rows of the first, want 171", n)
	}
}

func TestCopyOnce_AsksForARetryWhereTheSnapshotIsOld(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		target := keyed(t, pool)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM "+target.Table.Sanitize()); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t.Context(), pool, target, lines(1, 10, "other")); err != nil {
			t.Fatal(err)
		}
		_, err := idem.CopyOnce(t.Context(), tx, target, pgx.CopyFromRows(lines(1, 10, "mine")))
		wantErr(t, err, idem.ErrRetryTx)
	}
}

func TestCopyOnce_CountsChangedContent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	target.Compare = []string{"body"}
	if _, err := load(t.Context(), pool, target, [][]any{{int64(1), "a"}, {int64(2), "b"}, {int64(3), nil}}); err != nil {
		t.Fatal(err)
	}
	got, err := load(t.Context(), pool, target, [][]any{{int64(9), "new"}, {int64(1), "a"}, {int64(2), "B"}, {int64(3), "c"}})
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 4, Inserted: 1, Existed: 1, Changed: 2, FirstChanged: 3})
	if body := value[string](t, pool, "SELECT body FROM "+target.Table.Sanitize()+" WHERE id = 2"); body != "b" {
		t.Errorf("the existing row has %q, want it unchanged", body)
	}
}

func TestCopyOnce_RefusesAKeyThatNothingEnforces(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, columns := range map[string]string{
		"no index":     "id bigint, body text",
		"deferrable":   "id bigint UNIQUE DEFERRABLE, body text",
		"another":      "id bigint, body text UNIQUE",
		"a wider one":  "id bigint, body text, UNIQUE (id, body)",
		"an exclusion": "id bigint, body text, EXCLUDE (id WITH =)",
	} {
		target := idem.Target{Table: table(t, pool, columns), Columns: []string{"id", "body"}, Key: []string{"id"}}
		if _, err := load(t.Context(), pool, target, lines(1, 1, "")); !errors.Is(err, idem.ErrNoUniqueKey) {
			t.Errorf("%s: error is %v, want ErrNoUniqueKey", what, err)
		}
	}
	target := idem.Target{Table: table(t, pool, "id bigint, body text"), Columns: []string{"id", "body"}, Key: []string{"id"}}
	for _, index := range []string{"(id) WHERE id > 0", "((id + 1))", "(id, (lower(body)))"} {
		exec(t, pool, "CREATE UNIQUE INDEX ON "+target.Table.Sanitize()+" "+index)
	}
	_, err := load(t.Context(), pool, target, lines(1, 1, ""))
	wantErr(t, err, idem.ErrNoUniqueKey)
	if !strings.Contains(err.Error(), "CREATE UNIQUE INDEX ON") {
		t.Errorf("error %q doesn't say what to do", err)
	}
	exec(t, pool, "CREATE UNIQUE INDEX ON "+target.Table.Sanitize()+" (id) INCLUDE (body)")
	if _, err := load(t.Context(), pool, target, lines(1, 1, "")); err != nil {
		t.Errorf("an index with INCLUDE is enough, but: %v", err)
	}
}

func TestCopyOnce_RefusesBadInputAndLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	_, err := load(t.Context(), pool, target, [][]any{{int64(1), "a"}, {nil, "b"}})
	wantErr(t, err, idem.ErrInvalidKey)
	if !strings.Contains(err.Error(), "row 2") {
		t.Errorf("error %q doesn't say which row", err)
	}

	for _, bad := range []idem.Target{
		{Table: target.Table, Columns: target.Columns},
		{Table: target.Table, Columns: []string{"id", "id"}, Key: []string{"id"}},
		{Table: target.Table, Columns: []string{"body"}, Key: []string{"id"}},
		{Table: target.Table, Columns: target.Columns, Key: []string{"id", "id"}},
		{Table: target.Table, Columns: target.Columns, Key: []string{"id"}, Compare: []string{"nobody"}},
		{Columns: target.Columns, Key: []string{"id"}},
	} {
		_, err := load(t.Context(), pool, bad, lines(1, 1, ""))
		wantErr(t, err, idem.ErrInvalidKey)
	}
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()); n != 0 {
		t.Errorf("%d rows are left, want none", n)
	}
}

func TestCopyOnce_ReportsAnotherConstraint(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, "id bigint PRIMARY KEY, body text UNIQUE"),
		Columns: []string{"id", "body"}, Key: []string{"id"},
	}
	_, err := load(t.Context(), pool, target, [][]any{{int64(1), "same"}, {int64(2), "same"}})
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" {
		t.Fatalf("error is %v, want 23505 of the other constraint", err)
	}
}

func TestCopyOnce_RunsTwiceInOneTransactionOnOddNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, `"a ""b" int, gatepost_ordinal text, t int, UNIQUE (gatepost_ordinal, "a ""b")`),
		Columns: []string{"t", `a "b`, "gatepost_ordinal"}, Key: []string{`a "b`, "gatepost_ordinal"},
	}
	tx := begin(t, pool, pgx.TxOptions{})
	for _, want := range []idem.Counts{{Rows: 1, Inserted: 1}, {Rows: 1, Existed: 1}} {
		got, err := idem.CopyOnce(t.Context(), tx, target, pgx.CopyFromRows([][]any{{int32(1), int32(2), "x"}}))
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
}

// waitForLockWait returns when a backend whose statement has all these parts
// waits for a transaction to end.
func waitForLockWait(t *testing.T, pool *pgxpool.Pool, parts ...string) {
	t.Helper()
	waitUntil(t, "somebody to wait", func() bool {
		return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.wait_event_type = 'Lock'
			AND NOT EXISTS (SELECT FROM unnest($1::text[]) AS part WHERE position(part IN a.query) = 0))`, parts)
	})
}
