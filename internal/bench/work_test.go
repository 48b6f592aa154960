package bench_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type (
	operation = func(context.Context) error
	prepare   = func(*pgxpool.Pool, *pglock.Client) (operation, error)
)

// What operations cost is counted, so that a statement, a round trip, a transaction or
// an index entry more is seen on any machine. WAL is in bytes at most, a few more
// than PostgreSQL 14 to 18 write; the rest is exact.
//
//nolint:tparallel // the subtests count what the whole server writes
func TestWork_OfEachOperation(t *testing.T) {
	t.Parallel()
	cfg := silentServer(t)
	pool := pgtest.Connect(t, cfg.ConnString())
	if _, err := pool.Exec(t.Context(), `CREATE TABLE notes (note text); CREATE TABLE guarded (note text);
		CREATE TABLE loaded (id bigint PRIMARY KEY, note text);
		SELECT gatepost.guard_table('guarded', 'guarded')`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct { //nolint:paralleltest // see above
		name    string
		want    bench.Work
		prepare prepare
	}{
		// Waking whoever waits is a statement behind the release, which finds nobody.
		{"acquire and release", bench.Work{Statements: 3, Trips: 3, XIDs: 2, WAL: 590}, cycleOf},
		{"a failed try", bench.Work{Statements: 2, Trips: 2}, failedTry(t, pool)},
		// BEGIN and COMMIT go with a renewal.
		{"a renewal", bench.Work{Statements: 3, Trips: 1, XIDs: 1, WAL: 195}, renewal},
		{"a fenced INSERT", bench.Work{Statements: 4, Trips: 3, XIDs: 1, WAL: 170}, fenced},
		// As much as without the guard, which has no row of its own.
		{"a fenced INSERT into a guarded table", bench.Work{Statements: 4, Trips: 3, XIDs: 1, WAL: 170}, guarded},
		{"an idempotent INSERT", bench.Work{Statements: 7, Trips: 4, XIDs: 2, WAL: 900}, once(rand.Text)},
		{"a replay", bench.Work{Statements: 1, Trips: 1}, once(func() string { return "the-same" })},
		// BEGIN, COMMIT and the savepoint are among them, and COPY is a round trip more. The
		// transaction ids are its own and its savepoint's; a temporary table is a few rows of
		// the catalogs.
		{"CopyOnce of 100 rows", bench.Work{Statements: 9, Trips: 10, XIDs: 2, WAL: 30_000}, load(func(n int) int { return n * 100 })},
		{"CopyOnce of 100 rows that are there", bench.Work{Statements: 9, Trips: 10, XIDs: 1, WAL: 14_000}, load(func(int) int { return 0 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := bench.WorkOf(t.Context(), cfg, c.prepare)
			if err != nil {
				t.Fatal(err)
			}
			if wal := got.WAL; wal > c.want.WAL {
				t.Errorf("%g bytes of WAL, want at most %g", wal, c.want.WAL)
			}
			if strings.HasPrefix(c.name, "CopyOnce") { // COPY listens while it sends: now and then that is a turn more
				got.Trips = math.Floor(got.Trips)
			}
			if got.WAL = c.want.WAL; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// silentServer is a migrated server that writes nothing by itself.
func silentServer(t *testing.T) *pgxpool.Config {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "wal_level": "minimal", "max_wal_senders": "0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := migrations.Up(t.Context(), pgtest.Connect(t, server.URL(""))); err != nil {
		t.Fatal(err)
	}
	return config(t, server.URL(""))
}

func cycleOf(_ *pgxpool.Pool, client *pglock.Client) (operation, error) {
	return func(ctx context.Context) error {
		lease, err := client.Acquire(ctx, "cycle", nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}, nil
}

// failedTry tries to acquire what another client holds.
func failedTry(t *testing.T, pool *pgxpool.Pool) prepare {
	t.Helper()
	holder, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	if _, err := holder.TryAcquire(t.Context(), "held", nil); err != nil {
		t.Fatal(err)
	}
	return func(_ *pgxpool.Pool, client *pglock.Client) (operation, error) {
		return func(ctx context.Context) error {
			if _, err := client.TryAcquire(ctx, "held", nil); !errors.Is(err, pglock.ErrHeld) {
				return fmt.Errorf("TryAcquire: %w, want ErrHeld", err)
			}
			return nil
		}, nil
	}
}

func renewal(_ *pgxpool.Pool, client *pglock.Client) (operation, error) {
	lease, err := client.TryAcquire(context.Background(), "renewed", nil)
	if err != nil {
		return nil, err
	}
	return lease.Renew, nil
}

func fenced(_ *pgxpool.Pool, client *pglock.Client) (operation, error) {
	lease, err := client.TryAcquire(context.Background(), "fenced", nil)
	return func(ctx context.Context) error {
		return lease.InTx(ctx, func(tx pgx.Tx) error { return note(ctx, tx) })
	}, err
}

func guarded(_ *pgxpool.Pool, client *pglock.Client) (operation, error) {
	lease, err := client.TryAcquire(context.Background(), "guarded", nil)
	return func(ctx context.Context) error {
		return lease.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO guarded VALUES ('a note')")
			return err
		})
	}, err
}

// load loads 100 rows each time, from the one on that it is told.
func load(from func(n int) int) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (operation, error) {
		n := 0
		return func(ctx context.Context) error {
			n++
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := idem.CopyOnce(ctx, tx, idem.Target{Table: pgx.Identifier{"public", "loaded"}, Columns: []string{"id", "note"}, Key: []string{"id"}},
					pgx.CopyFromSlice(100, func(i int) ([]any, error) { return []any{int64(from(n) + i), "a note"}, nil }))
				return err
			})
		}, nil
	}
}

func note(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO notes VALUES ('a note')")
	return err
}

// once inserts once a key.
func once(key func() string) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (operation, error) {
		store, err := idem.New(pool, idem.Config{})
		return func(ctx context.Context) error {
			_, err := store.Do(ctx, idem.Key{Operation: "work", Scope: idem.Global, Key: key()}, idem.Fingerprint{}, nil,
				func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
					return idem.Reply{Body: make([]byte, 200)}, note(ctx, tx)
				})
			return err
		}, err
	}
}
