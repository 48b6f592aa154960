package idem_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// documents is a table with document 1 at version 7, and an update of it.
func documents(t *testing.T, pool *pgxpool.Pool) idem.Update {
	t.Helper()
	name := table(t, pool, "id bigint PRIMARY KEY, tenant text, body text, version int")
	exec(t, pool, "INSERT INTO "+name.Sanitize()+" VALUES (1, 'a', 'old', 7), (2, 'a', 'other', 7), (3, 'a', 'none', NULL)")
	return idem.Update{Table: name, Key: map[string]any{"id": 1}, Set: map[string]any{"body": "new"}}
}

func body(t *testing.T, pool *pgxpool.Pool, u idem.Update) string {
	t.Helper()
	return value[string](t, pool, "SELECT body || ' ' || version FROM "+u.Table.Sanitize()+" WHERE id = 1")
}

func wantStale(t *testing.T, err error, current int64) {
	t.Helper()
	wantErr(t, err, idem.ErrStale)
	if stale, ok := errors.AsType[*idem.StaleError](err); !ok || stale.Current != current {
		t.Errorf("error is %v, want a StaleError with version %d", err, current)
	}
}

func TestCompareAndSet_WritesOnlyOverTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	for _, stale := range []int64{6, 8, 0, -1, math.MaxInt64, math.MinInt64} {
		_, err := idem.CompareAndSet(t.Context(), pool, u, stale)
		wantStale(t, err, 7)
	}
	if got := body(t, pool, u); got != "old 7" {
		t.Errorf("a stale caller left %q", got)
	}
	version, err := idem.CompareAndSet(t.Context(), pool, u, 7)
	if err != nil || version != 8 {
		t.Fatalf("version %d, %v; want 8", version, err)
	}
	_, err = idem.CompareAndSet(t.Context(), pool, u, 7)
	wantStale(t, err, 8)
	if got := body(t, pool, u); got != "new 8" {
		t.Errorf("the document is %q, want new 8", got)
	}
	others := value[int](t, pool, "SELECT count(*) FROM "+u.Table.Sanitize()+" WHERE id = 2 AND version = 7 AND body = 'other'")
	if others != 1 {
		t.Error("another row was changed")
	}
}

func TestCompareAndSet_OneOfManyCallersSucceeds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			version, err := idem.CompareAndSet(t.Context(), pool, u, 7)
			switch {
			case err == nil && version == 8:
				won.Add(1)
			case !errors.Is(err, idem.ErrStale):
				t.Errorf("version %d, %v; want 8 or ErrStale", version, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d callers changed the row, want 1", won.Load())
	}
}

// On a pool the caller has no transaction to repeat, whatever the sessions' isolation is.
func TestCompareAndSet_TellsTheVersionOfTheWinnerItWaitedFor(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			tellsTheWinnersVersion(t, atLevel(t, level))
		})
	}
}

func tellsTheWinnersVersion(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	u := documents(t, pool)
	first := begin(t, pool, pgx.TxOptions{})
	if _, err := idem.CompareAndSet(t.Context(), first, u, 7); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := idem.CompareAndSet(t.Context(), pool, u, 7)
		second <- err
	}()
	waitForLockWait(t, pool, u.Table.Sanitize())
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStale(t, <-second, 8)
}

func TestCompareAndSet_TellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	tx := begin(t, pool, pgx.TxOptions{})
	for _, c := range []struct {
		key  map[string]any
		want error
	}{
		{map[string]any{"id": 99}, idem.ErrNotFound},
		{map[string]any{"id": 1, "tenant": "b"}, idem.ErrNotFound},
		{map[string]any{"id": 3}, idem.ErrNoVersion},
		{map[string]any{"id": nil}, idem.ErrInvalidKey},
		{map[string]any{"id": (*int)(nil)}, idem.ErrInvalidKey},
		{map[string]any{"": 1}, idem.ErrInvalidKey},
		{map[string]any{"id": 1, "version": 7}, idem.ErrInvalidKey},
		{map[string]any{strings.Repeat("i", 64): 1}, idem.ErrInvalidKey},
		{nil, idem.ErrInvalidKey},
	} {
		u.Key = c.key
		_, err := idem.CompareAndSet(t.Context(), tx, u, 7)
		wantErr(t, err, c.want)
	}
	// None of them has spoilt the transaction.
	u.Key = map[string]any{"id": 1, "tenant": "a"}
	if version, err := idem.CompareAndSet(t.Context(), tx, u, 7); err != nil || version != 8 {
		t.Errorf("version %d, %v; want 8", version, err)
	}
	u.Set = map[string]any{"version": 1}
	_, err := idem.CompareAndSet(t.Context(), tx, u, 8)
	wantErr(t, err, idem.ErrInvalidKey)
}

// Also on a pool, where the statement would have been committed by then.
func TestCompareAndSet_ChangesNothingWhereTheKeyFindsSeveralRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	u.Key = map[string]any{"tenant": "a"}
	for _, version := range []int64{7, 8} {
		_, err := idem.CompareAndSet(t.Context(), pool, u, version)
		wantErr(t, err, idem.ErrNoUniqueKey)
	}
	exec(t, pool, "UPDATE "+u.Table.Sanitize()+" SET version = 5 WHERE id <> 1")
	_, err := idem.CompareAndSet(t.Context(), pool, u, 7) // only one has this version
	wantErr(t, err, idem.ErrNoUniqueKey)
	if got := body(t, pool, u); got != "old 7" {
		t.Errorf("the document is %q, want it unchanged", got)
	}
}

// A trigger's own query that finds several rows says nothing of the key.
func TestCompareAndSet_LeavesATriggersErrorAsItIs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	name := pgx.Identifier{"public", u.Table[1][len(u.Table[1])-10:] + "_two"}.Sanitize()
	exec(t, pool, `CREATE FUNCTION `+name+`() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM (SELECT generate_series(1, 2)); RETURN new; END $$`)
	exec(t, pool, `CREATE TRIGGER two BEFORE UPDATE ON `+u.Table.Sanitize()+` FOR EACH ROW EXECUTE FUNCTION `+name+`()`)
	_, err := idem.CompareAndSet(t.Context(), pool, u, 7)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "21000" || errors.Is(err, idem.ErrNoUniqueKey) {
		t.Errorf("%v, want the trigger's own error", err)
	}
}

func TestCompareAndSet_AsksForARetryWhereTheSnapshotIsOld(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		u := documents(t, pool)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM "+u.Table.Sanitize()); err != nil {
			t.Fatal(err)
		}
		if _, err := idem.CompareAndSet(t.Context(), pool, u, 7); err != nil {
			t.Fatal(err)
		}
		_, err := idem.CompareAndSet(t.Context(), tx, u, 7)
		wantErr(t, err, idem.ErrRetryTx)
	}
}

func TestCompareAndSet_SaysWhenTheTableKeepsTheRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	u := documents(t, pool)
	exec(t, pool, "CREATE TRIGGER keep BEFORE UPDATE ON "+u.Table.Sanitize()+
		" FOR EACH ROW WHEN (old.id = 1) EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()")
	u.Set = nil // the version rises, so the row isn't redundant
	if version, err := idem.CompareAndSet(t.Context(), pool, u, 7); err != nil || version != 8 {
		t.Fatalf("version %d, %v; want 8", version, err)
	}
	exec(t, pool, "CREATE FUNCTION "+u.Table.Sanitize()+"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	exec(t, pool, "CREATE TRIGGER refuse BEFORE UPDATE ON "+u.Table.Sanitize()+" FOR EACH ROW EXECUTE FUNCTION "+u.Table.Sanitize()+"()")
	_, err := idem.CompareAndSet(t.Context(), pool, u, 8)
	wantErr(t, err, idem.ErrNotStored)
}

func TestCompareAndSet_TakesOddNamesTypesAndModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		if !works(mode) {
			continue
		}
		for _, integer := range []string{"smallint", "int", "bigint"} {
			pool := modePool(t, mode)
			name := table(t, pool, `"a ""b" text, r text, "V" `+integer+`, PRIMARY KEY ("a ""b", r)`)
			exec(t, pool, "INSERT INTO "+name.Sanitize()+" VALUES ('x', 'y', 0)")
			u := idem.Update{
				Table: name, VersionColumn: "V",
				Key: map[string]any{"r": "y", `a "b`: "x"}, Set: map[string]any{"r": "z"},
			}
			if version, err := idem.CompareAndSet(t.Context(), pool, u, 0); err != nil || version != 1 {
				t.Errorf("%s, %s: version %d, %v; want 1", mode, integer, version, err)
			}
		}
	}
}

// works says whether pgx itself works in a mode: behind a pooler two need a session.
func works(mode pgx.QueryExecMode) bool {
	return !pgtest.Pooled() || mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec
}

// modePool is a pool in one of pgx's exec modes.
func modePool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
