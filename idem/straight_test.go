package idem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// loadInChunks commits one CopyOnce whose chunks are of so many bytes, and so many.
func loadInChunks(ctx context.Context, pool *pgxpool.Pool, target idem.Target, rows pgx.CopyFromSource, size, chunks int) (counts idem.Counts, err error) {
	err = pgx.BeginTxFunc(ctx, pool, orReadCommitted(pgx.TxOptions{}), func(tx pgx.Tx) error {
		counts, err = idem.CopyInChunks(ctx, tx, target, rows, size, chunks)
		return err
	})
	return counts, err
}

// writers says how many transactions and savepoints wrote the table's rows: each chunk
// that went straight is one of them, and all that went through staging are one.
func writers(t *testing.T, pool *pgxpool.Pool, target idem.Target) int {
	t.Helper()
	return value[int](t, pool, "SELECT count(DISTINCT xmin::text) FROM "+target.Table.Sanitize())
}

func wantRows(t *testing.T, pool *pgxpool.Pool, target idem.Target, want int) {
	t.Helper()
	if n := value[int](t, pool, "SELECT count(*) FROM "+target.Table.Sanitize()); n != want {
		t.Errorf("%d rows, want %d", n, want)
	}
}

func TestCopyOnce_NewKeysThatRiseGoStraight(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 200, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
	if n := writers(t, pool, target); n < 4 || n > 12 {
		t.Errorf("%d chunks of 200 bytes, want some 6", n)
	}
	wantRows(t, pool, target, 100)
}

// A COPY that fails would say so in the server's log, and leave its rows dead.
func TestCopyOnce_AgainMeetsNoErrorAndLeavesNoDeadRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	size := func() int64 {
		return value[int64](t, pool, "SELECT pg_relation_size($1)", target.Table.Sanitize())
	}
	var before int64
	for _, want := range []idem.Counts{{Rows: 1000, Inserted: 1000}, {Rows: 1000, Existed: 1000}, {Rows: 1000, Existed: 1000}} {
		got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 1000, "body")), 5000, 100)
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
		if before == 0 {
			before = size()
		}
	}
	if after := size(); after != before {
		t.Errorf("the table has grown from %d to %d bytes", before, after)
	}
}

// A row may refer to one that comes later: the constraint is checked at the statement's
// end, which is that of a chunk, if it goes straight.
func TestCopyOnce_RowsMayReferToLaterOnes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{Table: table(t, pool, "id bigint PRIMARY KEY, next bigint"), Columns: []string{"id", "next"}, Key: []string{"id"}}
	exec(t, pool, "ALTER TABLE "+target.Table.Sanitize()+" ADD FOREIGN KEY (next) REFERENCES "+target.Table.Sanitize())
	var rows [][]any
	for id := int64(1); id < 100; id++ {
		rows = append(rows, []any{id, id + 1})
	}
	_, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(rows), 100, 100)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23503" {
		t.Errorf("error is %v, want 23503: the last row refers to none", err)
	}
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(append(rows, []any{int64(100), nil})), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
}

func TestCopyOnce_GoesStraightIntoPartitions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, "file int, line bigint, PRIMARY KEY (line, file)) PARTITION BY RANGE (line"),
		Columns: []string{"file", "line"}, Key: []string{"file", "line"},
	}
	for _, bound := range []string{"FROM (0) TO (50)", "FROM (50) TO (1000)"} {
		part := table(t, pool, "id int")
		exec(t, pool, "DROP TABLE "+part.Sanitize()+"; CREATE TABLE "+part.Sanitize()+" PARTITION OF "+target.Table.Sanitize()+" FOR VALUES "+bound)
	}
	var rows [][]any
	for line := int64(1); line <= 100; line++ {
		rows = append(rows, []any{1, line})
	}
	rows = append(rows, []any{2, int64(50)}, []any{1, int64(50)})
	for _, want := range []idem.Counts{{Rows: 102, Inserted: 101, Duplicate: 1}, {Rows: 102, Existed: 101, Duplicate: 1}} {
		got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(rows), 100, 100)
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
	if n := writers(t, pool, target); n < 3 {
		t.Errorf("%d transactions wrote the rows, want several chunks", n)
	}
}

// A unique key may have columns with NULLs, which are no keys of CopyOnce's.
func TestCopyOnce_LooksPastKeysWithNULLs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, "file int, line int, UNIQUE (file, line)"),
		Columns: []string{"file", "line"}, Key: []string{"file", "line"},
	}
	exec(t, pool, "INSERT INTO "+target.Table.Sanitize()+" VALUES (1, NULL), (2, NULL), (NULL, 1)")
	rows := [][]any{{1, 1}, {1, 2}, {2, 1}, {2, 2}}
	for _, want := range []idem.Counts{{Rows: 4, Inserted: 4}, {Rows: 4, Existed: 4}} {
		got, err := load(t.Context(), pool, target, rows)
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
	wantRows(t, pool, target, 7)
}
