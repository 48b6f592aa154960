package idem_test

import (
	"errors"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What doc.go says of other ways, on a table (id int PRIMARY KEY, body text).

func pitfall(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	pool := pgtest.ReadCommitted(t)
	return pool, table(t, pool, "id int PRIMARY KEY, body text, seq serial").Sanitize()
}

func wantState(t *testing.T, err error, state string) {
	t.Helper()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != state {
		t.Errorf("error is %v, want SQLSTATE %s", err, state)
	}
}

// meet runs second while a transaction that ran first is open, commits that, and
// returns what second gave.
func meet(t *testing.T, pool *pgxpool.Pool, first, second string) (rows int64, err error) {
	t.Helper()
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		tag, err := pool.Exec(t.Context(), second)
		rows = tag.RowsAffected()
		done <- err
	}()
	waitForWaiterOf(t, pool, tx)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rows, <-done
}

func TestPitfall_MergeFailsWhereTwoMeet(t *testing.T) {
	t.Parallel()
	pool, name := pitfall(t)
	if value[int](t, pool, "SELECT current_setting('server_version_num')::int / 10000") < 15 {
		t.Skip("MERGE is there from PostgreSQL 15 on")
	}
	merge := "MERGE INTO " + name + " AS t USING (SELECT 1 AS id) AS s ON t.id = s.id" +
		" WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
	_, err := meet(t, pool, merge, merge)
	wantState(t, err, "23505")
}

func TestPitfall_UnionAllSelectSeesNothingAfterAWait(t *testing.T) {
	t.Parallel()
	pool, name := pitfall(t)
	insert := "WITH new AS (INSERT INTO " + name + " (id) VALUES (1) ON CONFLICT DO NOTHING RETURNING id)" +
		" SELECT id FROM new UNION ALL SELECT id FROM " + name + " WHERE id = 1"
	rows, err := meet(t, pool, insert, insert)
	if err != nil || rows != 0 {
		t.Errorf("%d rows, %v; want none of either half", rows, err)
	}
	if tag, err := pool.Exec(t.Context(), insert); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("%s, %v; a new statement sees the row", tag, err)
	}
}

func TestPitfall_DoUpdateAsANoOpWritesEachTime(t *testing.T) {
	t.Parallel()
	pool, name := pitfall(t)
	upsert := "INSERT INTO " + name + " (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING xmin::text"
	first := value[string](t, pool, upsert)
	if again := value[string](t, pool, upsert); again == first {
		t.Error("the row was not written again")
	}
	_, err := pool.Exec(t.Context(), "INSERT INTO "+name+" (id) VALUES (2), (2) ON CONFLICT (id) DO UPDATE SET id = excluded.id")
	wantState(t, err, "21000")
	if _, err := pool.Exec(t.Context(), "INSERT INTO "+name+" (id) VALUES (2), (2) ON CONFLICT (id) DO NOTHING"); err != nil {
		t.Errorf("DO NOTHING takes a key twice, but: %v", err)
	}
}

func TestPitfall_APredicateMustBeImmutable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name := table(t, pool, "key text, expires_at timestamptz").Sanitize()
	_, err := pool.Exec(t.Context(), "CREATE UNIQUE INDEX ON "+name+" (key) WHERE expires_at > now()")
	wantState(t, err, "42P17")
	exec(t, pool, "CREATE UNIQUE INDEX ON "+name+" (key)")
	exec(t, pool, "INSERT INTO "+name+" (key) VALUES (NULL), (NULL)") // and NULL is not NULL
}

func TestPitfall_ASkippedInsertUsesUpASequenceValue(t *testing.T) {
	t.Parallel()
	pool, name := pitfall(t)
	for _, id := range []int{1, 1, 1, 2} {
		exec(t, pool, "INSERT INTO "+name+" (id) VALUES ($1) ON CONFLICT DO NOTHING", id)
	}
	if seq := value[int](t, pool, "SELECT seq FROM "+name+" WHERE id = 2"); seq != 4 {
		t.Errorf("the second row has number %d, want 4", seq)
	}
}

func TestPitfall_LookingFirstLetsTwoFindNothing(t *testing.T) {
	t.Parallel()
	pool, name := pitfall(t)
	look := "INSERT INTO " + name + " (id) SELECT 1 WHERE NOT EXISTS (SELECT FROM " + name + " WHERE id = 1)"
	_, err := meet(t, pool, look, look)
	wantState(t, err, "23505") // and without the constraint it would be there twice
}
