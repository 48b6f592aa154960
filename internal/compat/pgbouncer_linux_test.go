package compat_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// eachMode runs a test in each of pgx's exec modes that can work through PgBouncer in
// transaction mode, with a PgBouncer of so many connections to the shared database.
//
// Two modes are out of Gatepost's hands. cache_statement, pgx's default, needs a
// PgBouncer that follows prepared statements; without that it is "prepared statement
// already exists" or "does not exist". describe_exec describes the unnamed statement in
// one round trip and runs it in the next, on whatever connection that gets; no PgBouncer
// helps.
func eachMode(t *testing.T, size int, test func(t *testing.T, pool *pgxpool.Pool)) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			url, pooler := pooled(t, pgtest.URL(t), pgtemp.PoolerOptions{Size: size})
			prepares, err := pooler.Prepares(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if mode == pgx.QueryExecModeCacheStatement && !prepares {
				t.Skip("this PgBouncer doesn't follow prepared statements: max_prepared_statements is 0, or not known before 1.21")
			}
			test(t, connect(t, url, mode))
		})
	}
}

func connect(t *testing.T, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
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

// table is a table of the test's own with one text column.
func table(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	name := pgx.Identifier{"t_" + strings.ToLower(rand.Text())}.Sanitize()
	exec(t, pool, "CREATE TABLE "+name+" (note text)")
	return name
}

// insert is a fenced transaction's work.
func insert(ctx context.Context, table, note string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", note)
		return err
	}
}

func TestPgBouncer_OnlyTheCurrentHolderWrites(t *testing.T) {
	t.Parallel()
	eachMode(t, 4, func(t *testing.T, pool *pgxpool.Pool) {
		ctx, direct, name := t.Context(), pgtest.Pool(t), pgtest.Name(t)
		writes := table(t, direct)
		cfg := pglock.Config{TTL: time.Second, RenewEvery: 200 * time.Millisecond, DisableNotify: true}
		first, second := client(t, pool, cfg), client(t, pool, cfg)

		held := acquire(t, first, name)
		_, err := second.TryAcquire(ctx, name, nil)
		wantErr(t, err, pglock.ErrHeld)
		eventually(t, "heartbeats over three TTLs", func() bool {
			if held.Err() != nil {
				t.Fatalf("lease is lost: %v", held.Err())
			}
			return value[bool](t, direct, `SELECT renewed_at > acquired_at + interval '3 s'
				FROM gatepost.leases WHERE name = $1 AND token = $2`, name, held.Token())
		})
		for range 2 { // the second time from pgx's caches
			if err := held.InTx(ctx, insert(ctx, writes, "the holder")); err != nil {
				t.Fatalf("InTx: %v", err)
			}
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return errors.Join(pglock.Fence(ctx, tx, held.Sequencer()), insert(ctx, writes, "the holder")(tx))
			})
			if err != nil {
				t.Fatalf("Fence: %v", err)
			}
		}

		waiting := granted(t, second, name)
		release(t, held)
		taken := within(t, 10*time.Second, waiting)
		err = first.InTx(ctx, held.Sequencer(), insert(ctx, writes, "the stale one"))
		wantErr(t, err, pglock.ErrFenced)
		wantErr(t, err, pglock.ErrSuperseded)
		if err := taken.InTx(ctx, insert(ctx, writes, "the next holder")); err != nil {
			t.Fatalf("the next holder's InTx: %v", err)
		}
		release(t, taken)
		wantErr(t, first.InTx(ctx, taken.Sequencer(), insert(ctx, writes, "the stale one")), pglock.ErrReleased)
		if got := value[int](t, direct, "SELECT count(*) FROM "+writes); got != 5 {
			t.Errorf("got %d rows, want the 5 of the two holders", got)
		}
	})
}

// A release through PgBouncer wakes a client that listens past it.
func TestPgBouncer_AcquireIsWokenThroughADirectControl(t *testing.T) {
	t.Parallel()
	eachMode(t, 4, func(t *testing.T, pool *pgxpool.Pool) {
		direct, name := pgtest.Pool(t), pgtest.Name(t)
		cfg := pglock.Config{TTL: 2 * time.Minute, PollInterval: 2 * time.Minute, Control: direct}
		first, second := client(t, pool, cfg), client(t, pool, cfg)
		held := acquire(t, first, name)
		waiting := granted(t, second, name)
		eventually(t, "a registered waiter", func() bool {
			return value[bool](t, direct, `SELECT EXISTS (SELECT FROM gatepost.waiters WHERE name = $1)`, name)
		})
		release(t, held) // before the LISTEN or after it: both wake
		release(t, within(t, 10*time.Second, waiting))
	})
}

func TestPgBouncer_AStalledFenceIsEnded(t *testing.T) {
	t.Parallel()
	eachMode(t, 4, func(t *testing.T, pool *pgxpool.Pool) {
		direct, name := pgtest.Pool(t), pgtest.Name(t)
		c := client(t, pool, pglock.Config{FenceTimeout: 300 * time.Millisecond, DisableNotify: true})
		tx, err := acquire(t, c, name).BeginTx(t.Context(), pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expire(t, direct, name)
		release(t, within(t, 10*time.Second, granted(t, c, name)))
		wantErr(t, tx.Commit(t.Context()), pglock.ErrFenceTimeout)
	})
}

// With one connection behind PgBouncer, what a client leaves in a session the next one
// finds.
func TestPgBouncer_NoSessionStateIsLeft(t *testing.T) {
	t.Parallel()
	eachMode(t, 1, func(t *testing.T, pool *pgxpool.Pool) {
		ctx, name := t.Context(), pgtest.Name(t)
		writes := table(t, pgtest.Pool(t))
		another := connect(t, pool.Config().ConnString(), pgx.QueryExecModeExec)
		before := session(t, another)
		c := client(t, pool, pglock.Config{DisableNotify: true, PollInterval: 20 * time.Millisecond, FenceTimeout: 7 * time.Second})
		undo := errors.New("undo")
		for range 10 {
			held := acquire(t, c, name)
			_, err := c.TryAcquire(ctx, name, nil)
			wantErr(t, err, pglock.ErrHeld)
			if err := held.Renew(ctx); err != nil {
				t.Fatalf("Renew: %v", err)
			}
			if err := held.InTx(ctx, insert(ctx, writes, "kept")); err != nil {
				t.Fatalf("InTx: %v", err)
			}
			wantErr(t, held.InTx(ctx, func(pgx.Tx) error { return undo }), undo)
			waiting := granted(t, c, name)
			release(t, held)
			taken := within(t, 10*time.Second, waiting)
			wantErr(t, c.InTx(ctx, held.Sequencer(), insert(ctx, writes, "stale")), pglock.ErrFenced)
			release(t, taken)
		}
		after := session(t, another)
		if before["backend"] != after["backend"] {
			t.Fatalf("backend %s became %s: the test saw two sessions", before["backend"], after["backend"])
		}
		for key := range after {
			if before[key] != after[key] {
				t.Errorf("%s: was %q, is %q", key, before[key], after[key])
			}
		}
	})
}

// session is what the session of another client's statement carries: all settings, and
// what doesn't end with a transaction. PgBouncer prepares under names of its own.
func session(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT name, setting FROM pg_settings
		UNION ALL SELECT 'backend', pg_backend_pid()::text
		UNION ALL SELECT 'channels', coalesce(string_agg(c, ' '), '') FROM pg_listening_channels() AS c
		UNION ALL SELECT 'advisory locks', count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
		UNION ALL SELECT 'prepared statements', coalesce(string_agg(name, ' '), '') FROM pg_prepared_statements WHERE name NOT LIKE 'PGBOUNCER\_%'`)
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	var key, val string
	if _, err := pgx.ForEachRow(rows, []any{&key, &val}, func() error { state[key] = val; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(state) < 200 {
		t.Fatalf("got %d settings, want all", len(state))
	}
	return state
}

// The fence of database/sql needs no session either. Outside a transaction lib/pq has no
// business behind PgBouncer: it prepares and runs in two round trips.
func TestPgBouncer_FencesLibPQ(t *testing.T) {
	t.Parallel()
	db, direct := setup(t)
	pooled := open(t, pooledBy(t, direct.Config().ConnString(), 2))
	name := pgtest.Name(t)
	for way, add := range adds {
		for _, level := range levels {
			opts := &sql.TxOptions{Isolation: level}
			held := acquire(t, client(t, direct, asleep), name)
			if err := fenced(t, pooled, opts, held.Sequencer(), add, "the holder"); err != nil {
				t.Fatalf("%s, %s: %v", way, level, err)
			}
			release(t, held)
			wantErr(t, fenced(t, pooled, opts, held.Sequencer(), add, "the stale one"), pglock.ErrReleased)
		}
	}
	wantNotes(t, db, 6)
}
