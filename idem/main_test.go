package idem_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8") // most of the time they wait
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "25") // each of some 30 steps, over a real server
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// table makes a table of the test's own with a column list in SQL.
func table(t *testing.T, pool *pgxpool.Pool, columns string) pgx.Identifier {
	t.Helper()
	id := pgx.Identifier{"public", pgtest.Name(t)}
	if len(id[1]) > 63 {
		id[1] = id[1][len(id[1])-63:]
	}
	exec(t, pool, "CREATE TABLE "+id.Sanitize()+" ("+columns+")")
	return id
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	err := pgtest.Repeat(func() error { _, err := pool.Exec(t.Context(), sql, args...); return err })
	if err != nil {
		t.Fatal(err)
	}
}

// orReadCommitted is opts, at READ COMMITTED where they name no level: a claim about
// another one names it, since a transaction there is the caller's to repeat.
func orReadCommitted(opts pgx.TxOptions) pgx.TxOptions {
	opts.IsoLevel = cmp.Or(opts.IsoLevel, pgx.ReadCommitted)
	return opts
}

// begin opens a transaction that is rolled back at the end unless committed.
func begin(t *testing.T, pool *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), orReadCommitted(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	err := pgtest.Repeat(func() error { return pool.QueryRow(t.Context(), sql, args...).Scan(&v) })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want one that matches %v", err, want)
	}
}
