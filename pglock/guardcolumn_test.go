package pglock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// Where a column names the lease, each row asks for its own.
func TestGuardColumn_AsksForTheLeaseOfEachRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c, a, b := asleep(t, pool), pgtest.Name(t), pgtest.Name(t)
	la, lb := acquire(t, c, a, nil), acquire(t, c, b, nil)
	seqs := []pglock.Sequencer{la.Sequencer(), lb.Sequencer()}
	table := guardedTable(t, pool, "(lease text, v int)", byColumn("lease"))
	exec(t, pool, "ALTER TABLE "+table+" DISABLE TRIGGER USER")
	exec(t, pool, "INSERT INTO "+table+" VALUES ($1, 1), ($2, 2)", a, b)
	exec(t, pool, "ALTER TABLE "+table+" ENABLE TRIGGER USER")
	at := func(sql string) string {
		return strings.NewReplacer("$", table, ":a", "'"+a+"'", ":b", "'"+b+"'").Replace(sql)
	}
	for _, test := range []struct {
		sql  string
		held []pglock.Sequencer // enough
		few  []pglock.Sequencer // not enough
		part string
	}{
		{"INSERT INTO $ VALUES (:a, 3)", seqs[:1], seqs[1:], a},
		{"INSERT INTO $ VALUES (:a, 3), (:b, 4)", seqs, seqs[:1], b},
		{"UPDATE $ SET v = 5 WHERE lease = :a", seqs[:1], seqs[1:], a},
		{"UPDATE $ SET v = 5", seqs, seqs[1:], a},
		{"UPDATE $ SET lease = :b WHERE v = 1", seqs, seqs[:1], b},
		{"UPDATE $ SET lease = :b WHERE v = 1", seqs, seqs[1:], a},
		{"DELETE FROM $ WHERE lease = :a", seqs[:1], seqs[1:], a},
		{"DELETE FROM $", seqs, seqs[:1], b},
		{"INSERT INTO $ SELECT CASE i % 2 WHEN 0 THEN :a ELSE :b END, i FROM generate_series(1, 500) AS i", seqs, seqs[1:], a},
	} {
		sql := at(test.sql)
		_, err := session(t, pool).Exec(t.Context(), sql)
		wantGuard(t, "plain, "+sql, err, "column lease names: this transaction presents no fence")
		write := func(tx pgx.Tx) error {
			if err := run(t, tx, sql); err != nil {
				return err
			}
			return errUndo
		}
		if err := c.InTxAll(t.Context(), test.held, write); !errors.Is(err, errUndo) {
			t.Errorf("%s: %v", sql, err)
		}
		wantGuard(t, sql, c.InTxAll(t.Context(), test.few, write), test.part, "public."+table)
	}
}

// errUndo ends a transaction whose work is only looked at.
var errUndo = errors.New("undo it")

func TestGuardColumn_RefusesARowWithoutALeaseAndTruncate(t *testing.T) {
	t.Parallel()
	pool, lease := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, asleep(t, pool), lease, nil)
	table := guardedTable(t, pool, "(lease text)", byColumn("lease"))
	for sql, part := range map[string]string{
		"INSERT INTO $ VALUES (NULL)":      "a row names none",
		"INSERT INTO $ VALUES ('')":        "guarded by lease \"\"",
		"INSERT INTO $ VALUES ('unheard')": `guarded by lease "unheard"`,
		"TRUNCATE $":                       "TRUNCATE would take rows of all leases",
		"UPDATE $ SET lease = NULL":        "a row names none",
	} {
		err := l.InTx(t.Context(), func(tx pgx.Tx) error {
			if err := insert(t.Context(), tx, table, lease); err != nil {
				t.Error(err)
			}
			return run(t, tx, strings.ReplaceAll(sql, "$", table))
		})
		wantGuard(t, sql, err, part)
	}
}

// The row as it was stored counts: after triggers, and with generated columns.
func TestGuardColumn_LooksAtTheStoredRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c, a, b := asleep(t, pool), pgtest.Name(t), pgtest.Name(t)
	la, lb := acquire(t, c, a, nil), acquire(t, c, b, nil)
	table := guardedTable(t, pool, "(lease text)", byColumn("lease"))
	exec(t, pool, "CREATE FUNCTION f_"+table+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.lease := '"+b+"'; RETURN new; END $$")
	exec(t, pool, "CREATE TRIGGER zzz BEFORE INSERT ON "+table+" FOR EACH ROW EXECUTE FUNCTION f_"+table+"()")
	write := func(tx pgx.Tx) error { return insert(t.Context(), tx, table, a) }
	wantGuard(t, "changed by a trigger", la.InTx(t.Context(), write), b)
	if err := lb.InTx(t.Context(), write); err != nil {
		t.Error(err)
	}

	generated := guardedTable(t, pool, "(tenant int, lease text GENERATED ALWAYS AS ('tenant/' || CASE tenant WHEN 1 THEN '1' ELSE '2' END) STORED)", byColumn("lease"))
	name := "tenant/1"
	l, err := c.Acquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, ok := range map[string]bool{"1": true, "2": false} {
		err := l.InTx(t.Context(), func(tx pgx.Tx) error { return run(t, tx, "INSERT INTO "+generated+" VALUES ("+tenant+")") })
		if ok && err != nil {
			t.Errorf("tenant 1: %v", err)
		}
		if !ok {
			wantGuard(t, "tenant 2", err, `"tenant/2"`)
		}
	}
}

// Types whose text is the same in each session, as lease names.
func TestGuardColumn_TakesTextUUIDAndIntegers(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t) // names like 7 are no test's own
	pool := pgtest.Connect(t, url)
	c := asleep(t, pool)
	exec(t, pool, "CREATE DOMAIN tenant AS bigint")
	for kind, value := range map[string]string{
		"text": "it's", "varchar(9)": "é\n/%", "uuid": aNonce, "smallint": "-7", "int": "8", "bigint": "9007199254740993", "tenant": "10",
	} {
		l := acquire(t, c, value, nil)
		table := guardedTable(t, pool, `(v int, "the lease" `+kind+`)`, byColumn("the lease"))
		sql := "INSERT INTO " + table + " VALUES (1, '" + strings.ReplaceAll(value, "'", "''") + "')"
		if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
			return run(t, tx, sql, "UPDATE "+table+" SET v = 2", "DELETE FROM "+table)
		}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		_, err := pool.Exec(t.Context(), sql)
		wantGuard(t, kind, err, "presents no fence")
	}
}

// A renamed column is still the one that is looked at; doctor is told.
func TestGuardColumn_FollowsARename(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := asleep(t, pool)
	l := acquire(t, c, "a", nil)
	table := guardedTable(t, pool, "(lease text)", byColumn("lease"))
	exec(t, pool, "ALTER TABLE "+table+" RENAME lease TO owner")
	exec(t, pool, "ALTER TABLE "+table+" RENAME TO "+table+"_2")
	write := func(name string) error {
		return l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table+"_2", name) })
	}
	if err := write("a"); err != nil {
		t.Errorf("the lease's own: %v", err)
	}
	wantGuard(t, "another's", write("b"), "column lease names: a row names none", table+"_2")
	hole := onlyHole(t, pool)
	if hole.Problem != pglock.GuardColumnMissing || hole.Table[1] != table+"_2" {
		t.Errorf("hole %+v", hole)
	}
	guard(t, pool, table+"_2", byColumn("owner"))
	wantGuard(t, "guarded anew", write("b"), `lease "b"`)
}
