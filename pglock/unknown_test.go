package pglock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestTryAcquire_LostReplyIsFoundAgain(t *testing.T) {
	t.Parallel()
	direct, name := pgtest.Pool(t), pgtest.Name(t)
	pool, proxy := throughProxy(t, 4)
	c := acquainted(t, pool, pglock.Config{})
	for _, statement := range []string{"LeaseInsert", "LeaseTake"} { // the first grant, and later ones
		fault := proxy.Next(faultproxy.Fault{Match: statement})
		l := acquire(t, c, name, nil)
		_, margin := l.Timing()
		if from := l.Deadline().Add(margin - 30*time.Second); from.After(reached(t, fault)) {
			t.Errorf("%s: trusted from when it was found, want from when the request was sent", statement)
		}
		if r := row(t, direct, name); !r.Held || r.Token != l.Token() {
			t.Errorf("%s: row = %+v, lease has token %d", statement, r, l.Token())
		}
		if err := l.InTx(t.Context(), func(pgx.Tx) error { return nil }); err != nil {
			t.Errorf("%s: InTx: %v", statement, err)
		}
		release(t, l)
	}
}

// acquainted is a client that has taken a name that was there, and so knows its sessions'
// default isolation: the next one takes a single LeaseTake.
func acquainted(t *testing.T, pool *pgxpool.Pool, cfg pglock.Config) *pglock.Client {
	t.Helper()
	c, name := client(t, pool, cfg), pgtest.Name(t)
	for range 2 {
		release(t, acquire(t, c, name, nil))
	}
	return c
}

func TestTryAcquire_RequestThatNeverArrivedGrantsNothing(t *testing.T) {
	t.Parallel()
	direct, name := pgtest.Pool(t), pgtest.Name(t)
	pool, proxy := throughProxy(t, 4)
	for _, statement := range []string{"LeaseInsert", "LeaseTake"} {
		proxy.Next(faultproxy.Fault{Match: statement, Lose: true})
		if _, err := client(t, pool, pglock.Config{}).TryAcquire(t.Context(), name, nil); err == nil || errors.Is(err, pglock.ErrHeld) {
			t.Fatalf("%s: TryAcquire: %v, want the connection's error", statement, err)
		}
		release(t, acquire(t, client(t, direct, pglock.Config{}), name, nil))
	}
}

// No ghosts: what was granted to a caller that is gone is given back.
func TestTryAcquire_CtxThatEndsInTheMiddleLeavesNoGhost(t *testing.T) {
	t.Parallel()
	direct, name := pgtest.Pool(t), pgtest.Name(t)
	pool, proxy := throughProxy(t, 4)
	c := acquainted(t, pool, pglock.Config{TTL: time.Hour})
	for _, statement := range []string{"LeaseInsert", "LeaseTake"} {
		ctx, cancel := context.WithCancel(t.Context())
		fault := proxy.Next(faultproxy.Fault{Match: statement, Hold: true})
		go func() {
			defer cancel()
			<-fault
			eventually(t, "the grant", 20*time.Second, func() bool {
				return proxy.Stalls() && value[int](t, direct, `SELECT count(*) FROM gatepost.leases WHERE name = $1 AND nonce IS NOT NULL`, name) == 1
			})
		}()
		_, err := c.TryAcquire(ctx, name, nil)
		proxy.SetStall(false)
		wantErr(t, err, context.Canceled)
		eventually(t, "release of the ghost", 30*time.Second, func() bool { return !row(t, direct, name).Held })
	}
}

// A request that is still under way when its grant is given back for the first time: the
// grant comes after that, and is given back too.
func TestTryAcquire_GrantThatComesLateIsGivenBack(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	counter := &releases{}
	direct := poolWith(t, url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter })
	pool, proxy := faultproxy.Pool(t, url, 4)
	t.Cleanup(func() { proxy.SetStall(false) })
	c := client(t, pool, pglock.Config{TTL: time.Hour, Control: direct})
	release(t, acquire(t, c, name, nil))
	gate := gateGrants(t, direct)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { _, err := c.TryAcquire(ctx, name, nil); result <- err }()
	blocked(t, direct, gate.Conn().PgConn().PID())
	proxy.SetStall(true) // also what would cancel the statement
	before := counter.over.Load()
	cancel()
	wantErr(t, <-result, context.Canceled)
	eventually(t, "a release that finds nothing", 10*time.Second, func() bool { return counter.over.Load() > before })
	commit(t, gate)
	eventually(t, "the late grant", 10*time.Second, func() bool {
		return value[int](t, direct, `SELECT transitions FROM gatepost.leases WHERE name = $1`, name) == 2
	})
	eventually(t, "release of the ghost", 30*time.Second, func() bool { return !row(t, direct, name).Held })
}

// gateGrants holds up what grants a name that is free until the transaction ends that is
// returned. It is for a database of the test's own.
func gateGrants(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	exec(t, pool, `CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN new; END'`)
	exec(t, owner(t, pool), `CREATE TRIGGER gate BEFORE UPDATE ON gatepost.leases FOR EACH ROW
		WHEN (old.nonce IS NULL AND new.nonce IS NOT NULL) EXECUTE FUNCTION gate()`)
	gate := begin(t, pool, pgx.TxOptions{})
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	return gate
}

// releases counts the releases by nonce that were answered, as a tracer of pgx.
type releases struct{ over atomic.Int64 }

func (*releases) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *releases) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "name: LeaseRelease") {
		r.over.Add(1)
	}
}
func (*releases) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*releases) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*releases) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestTryAcquire_CtxThatEndsInABlackHoleReturnsAtOnce(t *testing.T) {
	t.Parallel()
	pool, proxy := throughProxy(t, 4)
	c := client(t, pool, pglock.Config{})
	acquire(t, c, pgtest.Name(t), nil)
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.TryAcquire(ctx, pgtest.Name(t), nil)
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("took %s", took)
	}
}

func TestRelease_LostReplyFreesTheRowAndWakes(t *testing.T) {
	t.Parallel()
	direct := pgtest.Connect(t, pgtest.Database(t))
	tries := &ended{tries: map[string]int{}}
	other := client(t, direct, pglock.Config{TTL: slowPoll.TTL, PollInterval: slowPoll.PollInterval, Tracer: tries})
	taken := pgtest.Name(t)
	acquire(t, client(t, direct, slowPoll), taken, nil)
	granted(t, other, taken) // a wake comes with its LISTEN
	eventually(t, "a third try, for that wake", 10*time.Second, func() bool { return tries.of(taken) >= 3 })
	for _, lose := range []bool{false, true} {
		// Each its own: the first client goes on releasing.
		pool, proxy := faultproxy.Pool(t, direct.Config().ConnString(), 4)
		c := client(t, pool, pglock.Config{TTL: time.Hour})
		name := pgtest.Name(t)
		l := acquire(t, c, name, nil)
		waiting := granted(t, other, name)
		registered(t, direct, name, 1)
		eventually(t, "the two tries before it sleeps", 10*time.Second, func() bool { return tries.of(name) >= 2 })
		proxy.Next(faultproxy.Fault{Match: "LeaseFree", Lose: lose})
		if err := l.Release(t.Context()); err == nil {
			t.Error("Release without an answer returned nil")
		}
		release(t, within(t, 20*time.Second, waiting))
	}
}

// Rule F7. The write is there exactly when InTx says so.
func TestInTx_LostReplyOfCommitIsResolved(t *testing.T) {
	t.Parallel()
	pool, proxy := throughProxy(t, 4)
	direct := pgtest.Pool(t)
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	for what, f := range map[string]faultproxy.Fault{"the reply": {Match: "commit"}, "the COMMIT": {Match: "commit", Lose: true}} {
		for _, level := range levels {
			table := table(t, direct)
			tx, err := l.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			if err := insert(t.Context(), tx, table, "once"); err != nil {
				t.Fatal(err)
			}
			proxy.Next(f)
			err = tx.Commit(t.Context())
			if committed := rows(t, direct, table) == 1; committed != (err == nil) || committed == f.Lose {
				t.Errorf("%s was lost at %s: committed = %t, Commit = %v", what, level, committed, err)
			}
			if errors.Is(err, pglock.ErrCommitUnknown) {
				t.Errorf("%s was lost at %s: %v, want to know", what, level, err)
			}
		}
	}
}

// Rule F7: an answer counts only from where the transaction ran. Elsewhere its id is
// another's.
func TestCommit_IsBelievedOnlyWhereItRan(t *testing.T) {
	t.Parallel()
	const ago = time.Minute
	hour, second := time.Hour.Microseconds(), time.Second.Microseconds()
	for what, c := range map[string]struct {
		row              lockdb.TransactionStatusRow
		known, committed bool
	}{
		"committed":                     {lockdb.TransactionStatusRow{Status: "committed", SystemIdentifier: "1", Timeline: "1", UpUs: hour}, true, true},
		"aborted":                       {lockdb.TransactionStatusRow{Status: "aborted", SystemIdentifier: "1", Timeline: "1", UpUs: hour}, true, false},
		"in progress":                   {lockdb.TransactionStatusRow{Status: "in progress", SystemIdentifier: "1", Timeline: "1", UpUs: hour}, false, false},
		"too old":                       {lockdb.TransactionStatusRow{SystemIdentifier: "1", Timeline: "1", UpUs: hour}, false, false},
		"committed on another system":   {lockdb.TransactionStatusRow{Status: "committed", SystemIdentifier: "2", Timeline: "1", UpUs: hour}, false, false},
		"aborted on another system":     {lockdb.TransactionStatusRow{Status: "aborted", SystemIdentifier: "2", Timeline: "1", UpUs: hour}, false, false},
		"committed on another timeline": {lockdb.TransactionStatusRow{Status: "committed", SystemIdentifier: "1", Timeline: "2", UpUs: hour}, false, false},
		"aborted on another timeline":   {lockdb.TransactionStatusRow{Status: "aborted", SystemIdentifier: "1", Timeline: "2", UpUs: hour}, false, false},
		"committed on a standby":        {lockdb.TransactionStatusRow{Status: "committed", Recovering: true, SystemIdentifier: "1", Timeline: "1", UpUs: hour}, false, false},
		"aborted on a standby":          {lockdb.TransactionStatusRow{Status: "aborted", Recovering: true, SystemIdentifier: "1", Timeline: "1", UpUs: hour}, false, false},
		"committed since a crash":       {lockdb.TransactionStatusRow{Status: "committed", SystemIdentifier: "1", Timeline: "1", UpUs: second}, false, false},
		"aborted by a crash":            {lockdb.TransactionStatusRow{Status: "aborted", SystemIdentifier: "1", Timeline: "1", UpUs: second}, true, false},
	} {
		if known, committed := pglock.CommitOutcome(c.row, ago); known != c.known || committed != c.committed {
			t.Errorf("%s: known = %t, committed = %t; want %t, %t", what, known, committed, c.known, c.committed)
		}
	}
}

// gated is a table whose deferred trigger holds each COMMIT up until the transaction
// ends that is returned.
func gated(t *testing.T, pool *pgxpool.Pool) (name string, holder pgx.Tx) {
	t.Helper()
	name = table(t, pool)
	gate := name[1 : len(name)-1]
	exec(t, pool, "CREATE FUNCTION "+name+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('"+gate+"')); RETURN NULL; END $$")
	exec(t, pool, "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON "+name+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "+name+"()")
	holder = begin(t, pool, pgx.TxOptions{})
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtext($1))`, gate); err != nil {
		t.Fatal(err)
	}
	return name, holder
}

// The end of its ctx neither cancels a COMMIT that is under way nor costs a connection.
func TestInTx_CommitOutlivesItsCtx(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	direct := pgtest.Pool(t)
	table, holder := gated(t, direct)
	l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
	connects := pool.Stat().NewConnsCount()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- l.InTx(ctx, func(tx pgx.Tx) error { return insert(ctx, tx, table, "once") })
	}()
	blocked(t, direct, holder.Conn().PgConn().PID())
	cancel()
	select {
	case err := <-result:
		t.Fatalf("InTx returned %v while COMMIT was under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	commit(t, holder)
	if err := <-result; err != nil || rows(t, direct, table) != 1 {
		t.Errorf("InTx: %v, %d rows; want it committed", err, rows(t, direct, table))
	}
	if pool.Stat().NewConnsCount() != connects {
		t.Error("the end of the ctx cost a connection")
	}
}

// COMMIT is held up, and meanwhile the backend is killed, or the connection breaks and
// COMMIT goes on.
func TestInTx_CommitUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	pool, proxy := throughProxy(t, 4)
	direct := pgtest.Pool(t)
	for _, kill := range []bool{true, false} {
		table, holder := gated(t, direct)
		l := acquire(t, asleep(t, pool), pgtest.Name(t), nil)
		tx, err := l.BeginTx(t.Context(), pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := insert(t.Context(), tx, table, "once"); err != nil {
			t.Fatal(err)
		}
		pid := int32(pgtest.Backend(t, tx))
		result := make(chan error, 1)
		if !kill {
			proxy.Next(faultproxy.Fault{Match: "commit"})
		}
		go func() { result <- tx.Commit(context.WithoutCancel(t.Context())) }()
		blocked(t, direct, holder.Conn().PgConn().PID())
		if kill {
			exec(t, direct, `SELECT pg_terminate_backend($1)`, pid)
			if err := <-result; err == nil || errors.Is(err, pglock.ErrCommitUnknown) {
				t.Errorf("Commit: %v, want to know that it was rolled back", err)
			}
		} else {
			commit(t, holder)
			if err := <-result; err != nil {
				t.Errorf("Commit: %v", err)
			}
		}
		if committed := rows(t, direct, table) == 1; committed == kill {
			t.Errorf("killed = %t, committed = %t", kill, committed)
		}
	}
}
