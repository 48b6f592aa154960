package bench_test

import (
	"crypto/rand"
	"math"
	"testing"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What operations cost is counted, so that a statement, a round trip, a transaction, an
// fsync or an index entry more is seen on any machine; below an operation of ours stands
// what it does instead of. WAL in bytes, and buffers, are at most, a few more than
// PostgreSQL 14 to 18 take; the rest is exact. Of PostgreSQL 14, which tells late what it
// counted, few windows are counted, and a new connection's catalogs may be in all of them.
//
//nolint:tparallel // the subtests count what the whole server writes
func TestWork_OfEachOperation(t *testing.T) {
	t.Parallel()
	cfg := silentServer(t)
	pool := pgtest.Connect(t, cfg.ConnString())
	if _, err := pool.Exec(t.Context(), workTables); err != nil {
		t.Fatal(err)
	}
	var late bool
	if err := pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int < 150000").Scan(&late); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct { //nolint:paralleltest // see above
		name    string
		want    bench.Work
		prepare prepare
	}{
		// The release commits asynchronously: the next acquisition syncs both.
		{"acquire and release", bench.Work{Statements: 3, Trips: 2, XIDs: 2, FSyncs: 1, WAL: 590, Buffers: 22}, cycleOf},
		{"plain: two UPDATEs", bench.Work{Statements: 2, Trips: 2, XIDs: 2, FSyncs: 2, WAL: 240, Buffers: 9}, plain(raise, raise)},
		{"a failed try", bench.Work{Statements: 2, Trips: 2, Buffers: 7}, failedTry(t, pool)},
		{"takeover of an expired lease", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 480, Buffers: 16}, takeover},
		// The release, waking, the waiter's acquisition, and its row's DELETE between BEGIN and
		// COMMIT. The table of those who wait is UNLOGGED, so its commits are not synced.
		{"hand-off to a waiter", bench.Work{Statements: 7, Trips: 4, XIDs: 4, FSyncs: 1, WAL: 750, Buffers: 80}, handOff(pool)},
		// BEGIN and COMMIT go with a renewal.
		{"a renewal", bench.Work{Statements: 3, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 195, Buffers: 26}, renewal},
		{"a heartbeat of 1,000 leases", bench.Work{Statements: 3, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 165_000, Buffers: 6200}, heartbeat},
		{"plain: an UPDATE", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 120, Buffers: 5}, plain(raise)},
		{"a fenced INSERT", bench.Work{Statements: 4, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 170, Buffers: 6}, fenced("fenced", note)},
		{"the same by a sequencer", bench.Work{Statements: 4, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 170, Buffers: 6}, handed("handed/1")},
		// 56 bytes and 4 buffers for each lease more, and no round trip.
		{"the same by three leases", bench.Work{Statements: 6, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 280, Buffers: 14}, handed("handed/1", "handed/2", "handed/3")},
		// As much as without the guard, which has no row of its own, but for reading the lease.
		{"the same into a guarded table", bench.Work{Statements: 4, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 170, Buffers: 10}, fenced("guarded", writes("INSERT INTO guarded VALUES ('a note')"))},
		{"plain: an INSERT in a transaction", bench.Work{Statements: 3, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 110, Buffers: 2}, inPlainTx(note)},
		{"100 rows, guarded by a column", bench.Work{Statements: 4, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 7500, Buffers: 115}, fenced("by-column", writes("INSERT INTO by_column"+rowsByColumn))},
		{"plain: 100 rows", bench.Work{Statements: 3, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 7400, Buffers: 105}, inPlainTx(writes("INSERT INTO by_nothing" + rowsByColumn))},
		// database/sql has no pipeline: two statements for the fence.
		{"a fenced INSERT by database/sql", bench.Work{Statements: 5, Trips: 5, XIDs: 1, FSyncs: 1, WAL: 170, Buffers: 6}, fencedSQL},
		{"plain: an INSERT by database/sql", bench.Work{Statements: 3, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 110, Buffers: 2}, plainSQL},
		// BEGIN, COMMIT and the effect's savepoint are among them; the second
		// transaction id is the savepoint's.
		{"an idempotent INSERT", bench.Work{Statements: 6, Trips: 3, XIDs: 2, FSyncs: 1, WAL: 900, Buffers: 17}, once(rand.Text)},
		// What a store doesn't expect costs more: a replay behind a first call begins with a
		// claim that it can't have, and a first call behind that with a look for a reply.
		{"first calls and replays in turns", bench.Work{Statements: 6, Trips: 3, XIDs: 1, FSyncs: 0.5, WAL: 450, Buffers: 15}, once(twice())},
		{"a replay", bench.Work{Statements: 1, Trips: 1, Buffers: 4}, once(func() string { return "the-same" })},
		// Two commits: the claim's comes before the effects outside the database.
		{"a claim under a lease, finished with an INSERT", bench.Work{Statements: 8, Trips: 4, XIDs: 2, FSyncs: 2, WAL: 1000, Buffers: 22}, attempt},
		{"a message's INSERT", bench.Work{Statements: 7, Trips: 5, XIDs: 2, FSyncs: 1, WAL: 560, Buffers: 16}, inbox(rand.Text)},
		{"a message that was seen", bench.Work{Statements: 6, Trips: 4, Buffers: 7}, inbox(func() string { return "the-same" })},
		{"InsertOnce", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 290, Buffers: 5}, insertOnce(rand.Text)},
		{"InsertOnce of what is there", bench.Work{Statements: 2, Trips: 2, Buffers: 7}, insertOnce(func() string { return "the-same" })},
		{"plain: an INSERT", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 250, Buffers: 4}, plain("INSERT INTO once SELECT gen_random_uuid(), 'a note'")},
		{"CompareAndSet", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 120, Buffers: 7}, compareAndSet},
		// The second of two transactions finds that there are no more.
		{"GC of 1,000 keys", bench.Work{Statements: 6, Trips: 2, XIDs: 1, FSyncs: 1, WAL: 115_000, Buffers: 8200}, collection},
		{"plain: a DELETE of 1,000 keys", bench.Work{Statements: 1, Trips: 1, XIDs: 1, FSyncs: 1, WAL: 115_000, Buffers: 8200}, plainCollection},
		// BEGIN, COMMIT and savepoints are among them, and COPY is a round trip more. New rows go
		// straight into the table: the second transaction id is the savepoint's. What is all
		// there, under consecutive numbers, is left out.
		{"CopyOnce of 100 rows", bench.Work{Statements: 7, Trips: 8, XIDs: 2, FSyncs: 1, WAL: 9500, Buffers: 300}, load(func(n int) int { return n * 100 })},
		{"CopyOnce of 100 rows that are there", bench.Work{Statements: 6, Trips: 6, Buffers: 60}, load(func(int) int { return 0 })},
		{"plain: COPY of 100 rows", bench.Work{Statements: 2, Trips: 3, XIDs: 1, FSyncs: 1, WAL: 9500, Buffers: 210}, plainLoad},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := bench.WorkOf(t.Context(), cfg, c.prepare)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("got %+v", got)
			if wal := got.WAL; wal > c.want.WAL {
				t.Errorf("%g bytes of WAL, want at most %g", wal, c.want.WAL)
			}
			if got.Buffers > c.want.Buffers && !late {
				t.Errorf("%g buffers, want at most %g", got.Buffers, c.want.Buffers)
			}
			got.Trips = math.Floor(got.Trips) // now and then one more: COPY listens while it sends, and what goes on behind may connect
			if got.WAL, got.Buffers = c.want.WAL, c.want.Buffers; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// silentServer is a migrated server that writes nothing by itself, and syncs what is
// committed.
func silentServer(t *testing.T) *pgxpool.Config {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "wal_level": "minimal", "max_wal_senders": "0",
		"fsync": "on", "wal_sync_method": "fdatasync", "wal_writer_delay": "10s",
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
