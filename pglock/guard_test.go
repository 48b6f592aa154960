package pglock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// guardedTable makes a table of those columns, guards it, and returns its name, which
// needs no quotes.
func guardedTable(t *testing.T, pool *pgxpool.Pool, columns string, opts pglock.GuardOptions) string {
	t.Helper()
	name := "g_" + strings.ToLower(rand.Text())
	exec(t, pool, "CREATE TABLE "+name+" "+columns)
	guard(t, pool, name, opts)
	return name
}

func guard(t *testing.T, pool *pgxpool.Pool, table string, opts pglock.GuardOptions) {
	t.Helper()
	if err := pglock.GuardTable(t.Context(), pool, pgx.Identifier{table}, opts); err != nil {
		t.Fatal(err)
	}
}

// byLease guards by one lease, byColumn by one that each row names.
func byLease(name string) pglock.GuardOptions    { return pglock.GuardOptions{Lease: name} }
func byColumn(column string) pglock.GuardOptions { return pglock.GuardOptions{LeaseColumn: column} }

// wantGuard fails unless a guard refused, and its message has all the parts.
func wantGuard(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != pglock.CodeFenced {
		t.Errorf("%s: %v, want it to be refused with GP001", what, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(pgErr.Message, part) {
			t.Errorf("%s: message %q, want %q in it", what, pgErr.Message, part)
		}
	}
	if pgErr.Hint == "" || pgErr.TableName == "" {
		t.Errorf("%s: hint %q, table %q", what, pgErr.Hint, pgErr.TableName)
	}
}

// codeOf is an error's SQLSTATE.
func codeOf(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// present does by hand what pglock does by itself.
func present(t *testing.T, tx pgx.Tx, seqs ...string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), `SELECT set_config('gatepost.fence', $1, true)`, strings.Join(seqs, " ")); err != nil {
		t.Fatal(err)
	}
}

// run runs statements in tx and returns the first error.
func run(t *testing.T, tx pgx.Tx, statements ...string) error {
	t.Helper()
	for _, sql := range statements {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}

// Each way to write, from a session that knows nothing of leases: refused. The same in a
// fenced transaction: done.
func TestGuard_RefusesEachWayToWriteWithoutAFence(t *testing.T) {
	t.Parallel()
	pool, lease := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, asleep(t, pool), lease, nil)
	parent := "p_" + strings.ToLower(rand.Text())
	exec(t, pool, "CREATE TABLE "+parent+" (id int PRIMARY KEY)")
	exec(t, pool, "INSERT INTO "+parent+" VALUES (1), (2)")
	table := guardedTable(t, pool, "(id int PRIMARY KEY, parent int REFERENCES "+parent+" ON DELETE CASCADE ON UPDATE CASCADE)", byLease(lease))
	exec(t, pool, "CREATE VIEW v_"+table+" AS SELECT id FROM "+table)
	exec(t, pool, "CREATE FUNCTION f_"+table+"() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO "+table+" VALUES (4)'")
	exec(t, pool, "CREATE TABLE r_"+table+" (id int)")
	exec(t, pool, "CREATE RULE r AS ON INSERT TO r_"+table+" DO INSTEAD INSERT INTO "+table+" VALUES (new.id)")
	statements := []string{
		"INSERT INTO $ VALUES (1, 1)",
		"INSERT INTO $ VALUES (1, 1) ON CONFLICT DO NOTHING",
		"INSERT INTO $ VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET parent = 2",
		"UPDATE $ SET parent = 1",
		"UPDATE $ SET id = 9 WHERE false",
		"WITH gone AS (DELETE FROM $ WHERE id = 77 RETURNING id) SELECT count(*) FROM gone",
		"INSERT INTO v_$ VALUES (2)",
		"UPDATE v_$ SET id = 3 WHERE id = 2",
		"SELECT f_$()",
		"INSERT INTO r_$ VALUES (5)",
		"DO 'BEGIN INSERT INTO $ VALUES (6); END'",
		"UPDATE " + parent + " SET id = 3 WHERE id = 1",
		"DELETE FROM " + parent + " WHERE id = 3",
		"TRUNCATE " + parent + " CASCADE",
		"DELETE FROM $",
		"TRUNCATE $",
		"PREPARE w_$ AS INSERT INTO $ VALUES (7); EXECUTE w_$",
	}
	if value[int](t, pool, "SELECT current_setting('server_version_num')::int") >= 150000 {
		statements = append(statements, "MERGE INTO $ AS g USING (VALUES (8)) AS v (id) ON v.id = g.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id)")
	}
	plain, ctx := session(t, pool), t.Context()
	for _, sql := range statements {
		sql = strings.ReplaceAll(sql, "$", table)
		_, err := plain.PgConn().Exec(ctx, sql).ReadAll()
		wantGuard(t, sql, err, "table public."+table, lease, "presents no fence")
		if err := l.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
			return err
		}); err != nil {
			t.Errorf("fenced, %s: %v", sql, err)
		}
	}
	copyIn := func(conn *pgx.Conn) error {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{table}, []string{"id"}, pgx.CopyFromRows([][]any{{10}, {11}}))
		return err
	}
	wantGuard(t, "COPY", copyIn(plain), "table public."+table)
	if err := l.InTx(ctx, func(tx pgx.Tx) error { return copyIn(tx.Conn()) }); err != nil {
		t.Errorf("fenced, COPY: %v", err)
	}
	if got := value[string](t, pool, "SELECT string_agg(id::text, ',' ORDER BY id) FROM "+table+" WHERE id <> 8"); got != "7,10,11" {
		t.Errorf("the fenced transactions left %s", got)
	}
}

// Every fence of pglock presents by itself.
func TestGuard_PassesEachFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			first, second := pgtest.Name(t), pgtest.Name(t)+` %2F/"é`+"\n "
			c, worker := asleep(t, pool), asleep(t, pool)
			a, b := acquire(t, c, first, nil), acquire(t, c, second, nil)
			table := guardedTable(t, pool, "(note text)", byLease(first))
			other := guardedTable(t, pool, "(note text)", byLease(second))
			one := func(tx pgx.Tx) error { return insert(ctx, tx, table, "x") }
			both := func(tx pgx.Tx) error { return errors.Join(one(tx), insert(ctx, tx, other, "x")) }
			own := func(fence func(pgx.Tx) error, write func(pgx.Tx) error) error {
				return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					if err := fence(tx); err != nil {
						return err
					}
					return write(tx)
				})
			}
			for what, err := range map[string]error{
				"InTx":        a.InTx(ctx, one),
				"Client.InTx": worker.InTx(ctx, a.Sequencer(), one),
				"InTxAll":     worker.InTxAll(ctx, []pglock.Sequencer{b.Sequencer(), a.Sequencer()}, both),
				"BeginTx":     inBeginTx(ctx, a, level, one),
				"Fence":       own(func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, a.Sequencer()) }, one),
				"Fence twice": own(func(tx pgx.Tx) error {
					return errors.Join(pglock.Fence(ctx, tx, a.Sequencer()), pglock.Fence(ctx, tx, b.Sequencer()), pglock.Fence(ctx, tx, a.Sequencer()))
				}, both),
				"FenceAll":  own(func(tx pgx.Tx) error { return pglock.FenceAll(ctx, tx, a.Sequencer(), b.Sequencer()) }, both),
				"sequencer": own(func(tx pgx.Tx) error { present(t, tx, a.Sequencer().String(), b.Sequencer().String()); return nil }, both),
				"in capitals": own(func(tx pgx.Tx) error {
					present(t, tx, strings.Replace(a.Sequencer().String(), nonceOf(a.Sequencer()), strings.ToUpper(nonceOf(a.Sequencer())), 1))
					return nil
				}, one),
				"fence(text)": own(func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT gatepost.fence($1)", b.Sequencer().String())
					return err
				}, func(tx pgx.Tx) error { return insert(ctx, tx, other, "x") }),
			} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if n, m := rows(t, pool, table), rows(t, pool, other); n != 9 || m != 5 {
				t.Errorf("%d and %d rows, want 9 and 5", n, m)
			}
			wantGuard(t, "another lease", b.InTx(ctx, one), first)
		})
	}
}

func inBeginTx(ctx context.Context, l *pglock.Lease, level pgx.TxIsoLevel, write func(pgx.Tx) error) error {
	tx, err := l.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := write(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// What was presented goes with its transaction: the next on the same connection has none.
func TestGuard_WhatIsPresentedEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool, lease := poolWith(t, pgtest.URL(t), maxConns(1)), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{Control: pgtest.Pool(t)}), lease, nil)
	table := guardedTable(t, pool, "(note text)", byLease(lease))
	byHand := func(write func(pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			present(t, tx, l.Sequencer().String())
			return write(tx)
		})
	}
	for _, in := range []func(func(pgx.Tx) error) error{
		func(write func(pgx.Tx) error) error { return l.InTx(t.Context(), write) }, byHand,
	} {
		if err := in(func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "x") }); err != nil {
			t.Fatal(err)
		}
		if left := value[string](t, pool, "SELECT coalesce(current_setting('gatepost.fence', true), '') || coalesce(current_setting('gatepost.fenced', true), '')"); left != "" {
			t.Errorf("of it there is left %q", left)
		}
		_, err := pool.Exec(t.Context(), "INSERT INTO "+table+" VALUES ('x')")
		wantGuard(t, "after it", err, "presents no fence")
	}
}
