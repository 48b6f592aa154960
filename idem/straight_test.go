package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func TestCopyOnce_SoManyChunksGoStraightAndNoMore(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 50, 3)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
	if n := writers(t, pool, target); n != 4 {
		t.Errorf("%d transactions wrote the rows, want 3 chunks and what came after them", n)
	}
	wantRows(t, pool, target, 100)
}

// While a source is read the connection is idle in its transaction: not for as long as a
// slow one needs for megabytes.
func TestCopyOnce_ASlowSourceGivesSmallChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sizes := idem.ChunksOf(pgx.CopyFromFunc(func() ([]any, error) {
			if n++; n > 9 {
				return nil, nil
			}
			time.Sleep(700 * time.Millisecond) //nolint:forbidigo // by the bubble's clock
			return []any{int64(n)}, nil
		}))
		if want := []int64{3, 3, 3, 0}; !slices.Equal(sizes, want) {
			t.Errorf("chunks of %d rows, want %d: one in two seconds", sizes, want)
		}
	})
}

func TestCopyOnce_AMillionRowsAreFewChunks(t *testing.T) {
	t.Parallel()
	n := int64(1e17)
	sizes := idem.ChunksOf(pgx.CopyFromFunc(func() ([]any, error) {
		if n++; n > 1e17+3_000_000 {
			return nil, nil
		}
		return []any{n}, nil
	}))
	if len(sizes) > 40 || sizes[0] > 15_000 || sizes[len(sizes)-2] > 450_000 {
		t.Errorf("60 MB are %d chunks of %d rows, want at most 40 from 256 KB to 8 MB", len(sizes), sizes)
	}
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

// Whoever has a key uncommitted is waited for, as the unique index has it; what the look
// before said is no longer true then.
func TestCopyOnce_WaitsForAKeyThatALookDoesNotSee(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"committed": true, "rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			target := keyed(t, pool)
			other := begin(t, pool, pgx.TxOptions{})
			if _, err := idem.CopyOnce(t.Context(), other, target, pgx.CopyFromRows(lines(50, 50, "other"))); err != nil {
				t.Fatal(err)
			}
			var got idem.Counts
			ended := make(chan error, 1)
			go func() {
				var err error
				got, err = loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "mine")), 200, 100)
				ended <- err
			}()
			waitForLockWait(t, pool, target.Table.Sanitize(), "COPY")
			end, want := other.Rollback, idem.Counts{Rows: 100, Inserted: 100}
			if commits {
				end, want = other.Commit, idem.Counts{Rows: 100, Inserted: 99, Existed: 1}
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, want)
			wantRows(t, pool, target, 100)
		})
	}
}

func TestCopyOnce_AnErrorUndoesWhatWentStraight(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	gone := errors.New("the source is gone")
	broken := func(rows [][]any, at int) pgx.CopyFromSource {
		next := 0
		return pgx.CopyFromFunc(func() ([]any, error) {
			if next++; next == at {
				return nil, gone
			}
			return rows[next-1], nil
		})
	}
	null := append(lines(1, 90, "body"), []any{nil, "no key"})
	value := append(lines(1, 90, "body"), []any{"ninety-one", "no integer"})
	for name, c := range map[string]struct {
		rows pgx.CopyFromSource
		want func(error) bool
	}{
		"of the source": {broken(lines(1, 100, "body"), 91), func(err error) bool { return errors.Is(err, gone) }},
		"of a key": {pgx.CopyFromRows(null), func(err error) bool {
			return errors.Is(err, idem.ErrInvalidKey) && strings.Contains(err.Error(), "row 91")
		}},
		"of a value":       {pgx.CopyFromRows(value), refusedIn("line 91, column id")},
		"of the row count": {pgx.CopyFromRows(append(lines(1, 90, "body"), []any{int64(91)})), func(err error) bool { return strings.Contains(err.Error(), "row 91 has 1 values") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := keyed(t, pool)
			tx := begin(t, pool, pgx.TxOptions{})
			if _, err := idem.CopyInChunks(t.Context(), tx, target, c.rows, 200, 100); !c.want(err) {
				t.Fatalf("error is %v", err)
			}
			_ = tx.Commit(t.Context()) // by somebody who didn't read that it is to be rolled back
			wantRows(t, pool, target, 0)
		})
	}
}

func TestCopyOnce_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows, next := lines(1, 100, "body"), 0
	_, err := loadInChunks(ctx, pool, target, pgx.CopyFromFunc(func() ([]any, error) {
		if next++; next == 50 {
			cancel() // while a chunk is copied
		}
		return rows[next-1], nil
	}), 100, 100)
	wantErr(t, err, context.Canceled)
	wantRows(t, pool, target, 0)
}

// Two loaders whose keys fall back take their locks in another order: one is told to
// repeat its transaction, and finds the other's rows then.
func TestCopyOnce_ADeadlockIsToBeRetried(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	var both sync.WaitGroup // have their first half in the table
	both.Add(2)
	ended := make(chan error, 2)
	for _, rows := range [][][]any{append(lines(101, 200, "a"), lines(1, 100, "a")...), append(lines(1, 100, "b"), []any{int64(1), "b"}, []any{int64(150), "b"})} {
		go func() {
			next, arrived := 0, sync.OnceFunc(both.Done)
			defer arrived()
			_, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromFunc(func() ([]any, error) {
				if next++; next == len(rows)+1 {
					arrived()
					both.Wait()
					return nil, nil
				}
				return rows[next-1], nil
			}), 100, 100)
			ended <- err
		}()
	}
	first, second := <-ended, <-ended
	if (first == nil) == (second == nil) {
		t.Fatalf("errors are %v and %v, want one", first, second)
	}
	wantErr(t, errors.Join(first, second), idem.ErrRetryTx)
}

// refusedIn says whether an error is the database's, of a row at that place.
func refusedIn(place string) func(error) bool {
	return func(err error) bool {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		return ok && strings.Contains(pgErr.Where, place)
	}
}

// Wherever a row goes, an error says which it is in the input, and in which table.
func TestCopyOnce_SaysWhichRowOfTheInputWasRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rows := func(bad ...any) pgx.CopyFromSource {
		return pgx.CopyFromRows(append(append(lines(1, 60, "1"), bad), lines(62, 80, "1")...))
	}
	for name, c := range map[string]struct {
		bad      []any
		existing string
		place    string
	}{
		"in a chunk":       {[]any{int64(61), "x\x01"}, "1000", "line 61"},
		"of the type":      {[]any{"61", "1 2", "y"}, "1000", "line 61, column note"},
		"in staging":       {[]any{"61", "1 2", "y"}, "1", "line 61, column note"},
		"in staging later": {[]any{"61", "1 2", "y"}, "35", "line 61, column note"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := idem.Target{
				Table:   table(t, pool, "id bigint PRIMARY KEY, note text CHECK (note !~ '\x01')"),
				Columns: []string{"id", "note"}, Key: []string{"id"},
			}
			if len(c.bad) == 3 {
				exec(t, pool, "ALTER TABLE "+target.Table.Sanitize()+" ALTER note TYPE varchar(4) USING note")
				c.bad = []any{c.bad[0], "too long"}
			}
			exec(t, pool, "INSERT INTO "+target.Table.Sanitize()+" VALUES ("+c.existing+", 'it')")
			_, err := loadInChunks(t.Context(), pool, target, rows(c.bad...), 100, 100)
			if !refusedIn("COPY " + target.Table[1] + ", " + c.place)(err) {
				pgErr, _ := errors.AsType[*pgconn.PgError](err)
				t.Errorf("error is %v, of %+v; want %s of the table", err, pgErr, c.place)
			}
			if !strings.Contains(err.Error(), ": row 61: ERROR") {
				t.Errorf("error is %q, which doesn't say the row", err)
			}
		})
	}
}

func TestCopyOnce_AnotherConstraintSpeaksAsItDoes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := idem.Target{
		Table:   table(t, pool, "id bigint PRIMARY KEY, body text UNIQUE"),
		Columns: []string{"id", "body"}, Key: []string{"id"},
	}
	rows := append(lines(1, 90, "body"), []any{int64(91), "body 1"})
	_, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(rows), 200, 100)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" || !strings.HasSuffix(pgErr.ConstraintName, "_body_key") {
		t.Fatalf("error is %v, want 23505 of the other constraint", err)
	}
	wantRows(t, pool, target, 0)
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

// Where COPY does something else than an INSERT, all is as it was.
func TestCopyOnce_GoesThroughStagingWhereCOPYIsNotAnINSERT(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, c := range map[string]struct{ key, ddl string }{
		"a statement's trigger":  {"id bigint PRIMARY KEY", "CREATE TRIGGER t AFTER INSERT ON %[1]s FOR EACH STATEMENT EXECUTE FUNCTION %[2]s()"},
		"a row's trigger":        {"id bigint PRIMARY KEY", "CREATE TRIGGER t AFTER INSERT ON %[1]s FOR EACH ROW EXECUTE FUNCTION %[2]s()"},
		"a child":                {"id bigint PRIMARY KEY", "CREATE TABLE %[2]s () INHERITS (%[1]s)"},
		"a policy":               {"id bigint PRIMARY KEY", "ALTER TABLE %[1]s ENABLE ROW LEVEL SECURITY"},
		"an index that descends": {"id bigint", "CREATE UNIQUE INDEX ON %[1]s (id DESC)"},
		"a key of another type":  {"id numeric PRIMARY KEY", ""},
		"a key of a domain":      {"id bigint PRIMARY KEY", "CREATE DOMAIN %[2]s AS bigint; ALTER TABLE %[1]s ALTER id TYPE %[2]s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := idem.Target{Table: table(t, pool, c.key+", body text"), Columns: []string{"id", "body"}, Key: []string{"id"}}
			other := table(t, pool, "id int")
			exec(t, pool, "DROP TABLE "+other.Sanitize())
			if strings.Contains(c.ddl, "TRIGGER") {
				exec(t, pool, "CREATE FUNCTION "+other.Sanitize()+"() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$")
			}
			if c.ddl != "" {
				exec(t, pool, fmt.Sprintf(c.ddl, target.Table.Sanitize(), other.Sanitize()))
			}
			got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 200, 100)
			if err != nil {
				t.Fatal(err)
			}
			wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
			if n := writers(t, pool, target); n != 1 {
				t.Errorf("%d chunks went straight", n)
			}
		})
	}
}

// COPY would fill an identity that an INSERT may not name, and has another error for a
// generated column.
func TestCopyOnce_RefusesAColumnThatAnINSERTMayNotName(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, column := range map[string]string{
		"identity":  "body bigint GENERATED ALWAYS AS IDENTITY",
		"generated": "body bigint GENERATED ALWAYS AS (id * 2) STORED",
	} {
		target := idem.Target{Table: table(t, pool, "id bigint PRIMARY KEY, "+column), Columns: []string{"id", "body"}, Key: []string{"id"}}
		_, err := load(t.Context(), pool, target, [][]any{{int64(1), int64(2)}})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "428C9" {
			t.Errorf("%s: error is %v, want 428C9, generated_always", name, err)
		}
	}
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

// A role that may not read the whole table can't ask which rows are its own.
func TestCopyOnce_NeedsNoMoreThanTheColumns(t *testing.T) {
	t.Parallel()
	pgtest.NotAsRole(t, "it makes one, with less than that")
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	role := pgx.Identifier{"r" + target.Table[1][len(target.Table[1])-10:]}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role+"; GRANT SELECT (id), INSERT (id, body) ON "+target.Table.Sanitize()+" TO "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
		t.Fatal(err)
	}
	got, err := idem.CopyInChunks(t.Context(), tx, target, pgx.CopyFromRows(falling()), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 54, Inserted: 52, Duplicate: 2})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
