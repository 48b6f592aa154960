//go:build unix

package pglock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// server starts one of the test's own, with Gatepost's schema in it.
func server(t *testing.T, settings map[string]string) (*pgtemp.Server, *pgxpool.Pool) {
	t.Helper()
	s, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := pgtest.Connect(t, s.URL(""))
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return s, pool
}

// restart restarts a server, and drops the dead connections of the test's own pool.
func restart(t *testing.T, s *pgtemp.Server, pool *pgxpool.Pool, how pgtemp.Shutdown) {
	t.Helper()
	err := s.Restart(t.Context(), how)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	pool.Reset()
}

// A lease is a row, so it outlives the server's processes; an advisory lock does not.
func TestRestart_LeavesLeasesHeldAndWaitersWaiting(t *testing.T) {
	t.Parallel()
	s, pool := server(t, nil)
	const poll, busy = 500 * time.Millisecond, time.Second // for the connections that have to be made again
	// So many heartbeats that some fail meanwhile.
	cfg := pglock.Config{TTL: 20 * time.Second, RenewEvery: 20 * time.Millisecond, PollInterval: poll}
	for what, how := range map[string]pgtemp.Shutdown{"fast": pgtemp.Fast, "immediate": pgtemp.Immediate} {
		t.Run(what, func(t *testing.T) { //nolint:paralleltest // one server
			name, table := pgtest.Name(t), table(t, pool)
			l := acquire(t, client(t, poolWith(t, s.URL(""), maxConns(1)), cfg), name, nil)
			waiting := granted(t, client(t, pgtest.Connect(t, s.URL("")), cfg), name)
			registered(t, pool, name, 1)
			before := clock(t, pool)

			restart(t, s, pool, how)
			up := clock(t, pool)
			renewedAgain(t, pool, name)
			if l.Err() != nil || row(t, pool, name).Token != l.Token() {
				t.Fatalf("the lease is lost: %v; the row is %+v", l.Err(), row(t, pool, name))
			}
			registered(t, pool, name, 1)
			// The crash has emptied the table.
			again := value[time.Time](t, pool, `SELECT since FROM gatepost.waiters WHERE name = $1`, name)
			if how == pgtemp.Immediate && (again.Before(before) || again.Sub(up) > poll+busy) {
				t.Errorf("it waits since %s; want it registered again within %s of %s", again, poll, up)
			}

			eventually(t, "a fenced write", 10*time.Second, func() bool { // the first one meets a dead connection
				return l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "x") }) == nil
			})
			release(t, l)
			released := clock(t, pool)
			next := within(t, 20*time.Second, waiting)
			grantedBy(t, pool, name, released, 2*poll+busy) // its first try may meet a dead connection too
			if next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			release(t, next)
		})
	}
}

// Rule A5: commits are asynchronous by default here, and a crash loses those, but not
// what a holder was told.
func TestCrash_LosesNoGrantAndNoRenewal(t *testing.T) {
	t.Parallel()
	s, pool := server(t, map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"})
	name, cfg := pgtest.Name(t), pglock.Config{TTL: time.Hour, SafetyMargin: time.Millisecond}
	var l *pglock.Lease
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the first grant", func() { l = acquire(t, client(t, pgtest.Connect(t, s.URL("")), cfg), name, nil) }},
		{"a renewal", func() {
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"a takeover", func() {
			before := l.Token()
			expire(t, pool, name)
			if l = acquire(t, client(t, pgtest.Connect(t, s.URL("")), cfg), name, nil); l.Token() <= before {
				t.Errorf("token %d after %d", l.Token(), before)
			}
		}},
	} {
		step.do()
		restart(t, s, pool, pgtemp.Immediate)
		r := row(t, pool, name)
		if !r.Held || r.Token != l.Token() {
			t.Fatalf("after %s and a crash the row is %+v, want token %d", step.what, r, l.Token())
		}
		if l.Deadline().After(r.Expires) {
			t.Errorf("after %s and a crash it is trusted for %s too long", step.what, l.Deadline().Sub(r.Expires))
		}
	}
	if value[string](t, pool, `SHOW synchronous_commit`) != "off" {
		t.Error("commits are synchronous anyway: this test proves nothing")
	}
}

// A release may be lost in a crash, and then the lease is as its holder left it; but not
// one that somebody was granted the lease after.
func TestCrash_ForgetsAReleaseAtMostUntilTheNextGrant(t *testing.T) {
	t.Parallel()
	s, pool := server(t, map[string]string{"wal_writer_delay": "10s"})
	name, cfg := pgtest.Name(t), pglock.Config{TTL: time.Hour}
	c := client(t, pool, cfg)
	first := acquire(t, c, name, nil)
	release(t, first)
	second := acquire(t, c, name, nil)
	restart(t, s, pool, pgtemp.Immediate)
	if r := row(t, pool, name); !r.Held || r.Token != second.Token() {
		t.Fatalf("after a release, a grant and a crash the row is %+v, want token %d", r, second.Token())
	}

	release(t, second)
	restart(t, s, pool, pgtemp.Immediate)
	r := row(t, pool, name)
	if r.Token != second.Token() {
		t.Fatalf("after a release and a crash the row is %+v, want token %d", r, second.Token())
	}
	t.Logf("the release is forgotten: %t", r.Held)
	if r.Held { // by nobody: it is not renewed, and expires
		expire(t, pool, name)
	}
	third := acquire(t, c, name, nil)
	if third.Token() <= second.Token() {
		t.Errorf("token %d after %d", third.Token(), second.Token())
	}
	release(t, third)
}

// What is busy costs the server nothing that it would have to write down: as seen
// from outside, on a server where nothing else runs.
func TestTryAcquire_BusyWritesNoWALAndTakesNoTransaction(t *testing.T) {
	t.Parallel()
	_, pool := server(t, map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "wal_level": "minimal", "max_wal_senders": "0",
	})
	c := client(t, pool, pglock.Config{TTL: time.Hour, FenceTimeout: time.Hour})
	held, fenced, reserved := pgtest.Name(t), pgtest.Name(t), pgtest.Name(t)
	acquire(t, c, held, nil)
	tx, err := acquire(t, c, fenced, nil).BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	expire(t, pool, fenced)
	release(t, acquire(t, c, reserved, nil))
	exec(t, pool, `UPDATE gatepost.leases SET reserved_for = 'x', reserved_until = clock_timestamp() + interval '1 h' WHERE name = $1`, reserved)

	// What the migrations replaced in the catalogs would be tidied up by whoever reads it.
	exec(t, pool, `VACUUM`)
	written := func() string {
		return value[string](t, pool, `SELECT concat_ws(' ', pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot()))`)
	}
	for _, name := range []string{held, fenced, reserved} {
		var before string
		for i := range 60 {
			if i == 10 { // by now, each connection has read what it reads once
				before = written()
			}
			_, err := c.TryAcquire(t.Context(), name, nil)
			wantErr(t, err, pglock.ErrHeld)
			_, err = c.Acquire(t.Context(), name, &pglock.AcquireOptions{Wait: pglock.NoWait})
			wantErr(t, err, pglock.ErrHeld)
		}
		if after := written(); after != before {
			t.Errorf("%s: WAL and transactions went from %s to %s\n%s", name, before, after, walBetween(t, pool, before, after))
		}
	}
}

// walBetween describes what was written, where pg_walinspect is there to do it.
func walBetween(t *testing.T, pool *pgxpool.Pool, before, after string) string {
	t.Helper()
	before, _, _ = strings.Cut(before, " ")
	after, _, _ = strings.Cut(after, " ")
	if _, err := pool.Exec(t.Context(), `CREATE EXTENSION pg_walinspect`); err != nil {
		return err.Error()
	}
	return value[string](t, pool, `SELECT coalesce(string_agg(r::text, E'\n'), '')
		FROM pg_get_wal_records_info($1::pg_lsn, $2::pg_lsn) AS r`, before, after)
}
