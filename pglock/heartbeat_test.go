package pglock_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// short is a TTL that a test can wait for, and often an interval that lets a busy
// machine keep it; long is one that a machine too busy for that keeps.
const (
	short = 2 * time.Second
	long  = 15 * time.Second
	often = 200 * time.Millisecond
)

func TestHeartbeat_LivesWhileTheApplicationsPoolIsExhausted(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	l := acquire(t, client(t, pool, pglock.Config{TTL: 2 * short, RenewEvery: often}), name, nil)
	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Release()
	until := row(t, direct, name).Expires.Add(short)
	eventually(t, "held for longer than the TTL", 20*time.Second, func() bool {
		return l.Err() != nil || row(t, direct, name).Renewed.After(until)
	})
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
	// Neither does the release starve.
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestHeartbeat_SurvivesItsBackend(t *testing.T) {
	t.Parallel()
	url, name := pgtest.Database(t), pgtest.Name(t)
	direct, pool := pgtest.Connect(t, pgtest.Direct(t, url)), poolWith(t, url, setting("application_name", name))
	l := acquire(t, client(t, pool, pglock.Config{TTL: long, RenewEvery: often}), name, nil)
	renewedAgain(t, direct, name)
	exec(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = left($1, 63)`, name)
	renewedAgain(t, direct, name)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

func TestHeartbeat_SurvivesALostReply(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool, proxy := throughProxy(t, 4)
	l := acquire(t, client(t, pool, pglock.Config{TTL: long, RenewEvery: often}), name, nil)
	reached(t, proxy.Next(faultproxy.Fault{Match: "LeaseRenew"}))
	renewedAgain(t, direct, name)
	reached(t, proxy.Next(faultproxy.Fault{Match: "LeaseRenew", Lose: true}))
	renewedAgain(t, direct, name)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

// A connection that went silent is replaced, and its place in the pool with it:
// two silences use up both places otherwise.
func TestHeartbeat_SurvivesConnectionsThatGoSilent(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool, proxy := throughProxy(t, 4)
	cfg := pglock.Config{TTL: long, RenewEvery: 500 * time.Millisecond}
	l := acquire(t, client(t, pool, cfg), name, nil)
	for range 3 {
		renewedAgain(t, direct, name)
		reached(t, proxy.Next(faultproxy.Fault{Match: "LeaseRenew", Delay: 3 * time.Second}))
	}
	renewedAgain(t, direct, name)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

// A connection that is made more slowly than a try has time is one that a later try has.
func TestHeartbeat_WaitsForAConnectionThatIsMadeSlowly(t *testing.T) {
	t.Parallel()
	const slowly = 350 * time.Millisecond // a try has 250 ms
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-time.After(slowly):
				return dial(ctx, network, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	l := acquire(t, client(t, pool, pglock.Config{TTL: long, RenewEvery: often}), name, nil)
	renewedAgain(t, direct, name)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

func TestHeartbeat_RespectsEachLeasesTTL(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	brief, long := pgtest.Name(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: often})
	acquire(t, c, brief, &pglock.AcquireOptions{TTL: short})
	acquire(t, c, long, nil)
	renewedAgain(t, pool, brief)
	renewedAgain(t, pool, long)
	if got := row(t, pool, brief).TTL; got != short {
		t.Errorf("the short lease has %s, want %s", got, short)
	}
	if got := row(t, pool, long).TTL; got != time.Minute {
		t.Errorf("the long lease has %s, want 1m", got)
	}
}

// A try has the time that suits the shortest interval in it. Leases that are too
// short for the network must not take a long one down with them.
func TestHeartbeat_LongLeaseOutlivesHopelessShortOnes(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool, proxy := throughProxy(t, 10)
	c := client(t, pool, pglock.Config{TTL: 6 * time.Second})
	l := acquire(t, c, name, nil)
	until := row(t, direct, name).Expires.Add(time.Second)
	proxy.SetLatency(25 * time.Millisecond)
	over := make(chan struct{})
	var acquiring sync.WaitGroup
	for range 8 { // so that one of them is always due
		acquiring.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, _ = c.TryAcquire(t.Context(), pgtest.Name(t), &pglock.AcquireOptions{TTL: 120 * time.Millisecond})
				}
			}
		})
	}
	defer acquiring.Wait()
	defer close(over)
	eventually(t, "held for longer than the TTL", 30*time.Second, func() bool {
		return l.Err() != nil || row(t, direct, name).Renewed.After(until)
	})
	if l.Err() != nil {
		t.Errorf("the long lease is lost: %v", l.Err())
	}
}

func TestHeartbeat_IsNotHeldUpByTheHoldersOwnFence(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{TTL: long, RenewEvery: often}), name, nil)
	tx := fenced(t, pool, l, false, pgx.ReadCommitted)
	holder := pgtest.Backend(t, tx)
	for range 3 {
		from := row(t, pool, name).Renewed
		eventually(t, "renewal", 10*time.Second, func() bool {
			if isBlocked(t, pool, holder) {
				t.Error("a heartbeat waits for a lock")
			}
			return row(t, pool, name).Renewed.After(from)
		})
	}
	commit(t, tx)
	if l.Err() != nil {
		t.Errorf("lease is lost: %v", l.Err())
	}
}

func TestHeartbeat_EndsALeaseThatTheDatabaseGaveToAnother(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	a := acquire(t, client(t, pool, pglock.Config{RenewEvery: 20 * time.Millisecond}), name, nil)
	exec(t, pool, `UPDATE gatepost.leases SET nonce = gen_random_uuid(), token = token + 1 WHERE name = $1`, name)
	soon(t, "loss", a.Done())
	wantErr(t, a.Err(), pglock.ErrSuperseded)
	wantErr(t, a.Err(), pglock.ErrLost)
}

// Rule L: by a local timer, never behind I/O.
func TestDone_ClosesBeforeTheExpiryWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	name, direct := pgtest.Name(t), pgtest.Pool(t)
	pool, proxy := throughProxy(t, 4)
	l := acquire(t, client(t, pool, pglock.Config{TTL: 2 * time.Second, SafetyMargin: time.Second}), name, nil)
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })
	soon(t, "Done", l.Done())
	if r := row(t, direct, name); !r.Expires.After(r.Now) {
		t.Errorf("Done closed %s after the expiry in the database", r.Now.Sub(r.Expires))
	}
	wantErr(t, l.Err(), pglock.ErrExpired)
	wantErr(t, l.Err(), pglock.ErrLost)
	wantErr(t, l.Renew(t.Context()), pglock.ErrExpired)
	_, err := l.BeginTx(t.Context(), pgx.TxOptions{})
	wantErr(t, err, pglock.ErrFenced)
	wantErr(t, err, pglock.ErrExpired)
}

// The trust counts from when a request was sent: the server may have computed
// the expiry long before its answer arrives.
func TestDeadline_CountsFromWhenTheRequestWasSent(t *testing.T) {
	t.Parallel()
	pool, proxy := throughProxy(t, 4)
	const ttl, margin, late = 6 * time.Second, time.Second, 400 * time.Millisecond
	c := client(t, pool, pglock.Config{TTL: ttl, SafetyMargin: margin, RenewEvery: 4 * time.Second})
	acquire(t, c, pgtest.Name(t), nil) // warms the connection up

	fault := proxy.Next(faultproxy.Fault{Match: "LeaseInsert", Delay: late})
	l := acquire(t, c, pgtest.Name(t), nil)
	if limit := reached(t, fault).Add(ttl - margin); l.Deadline().After(limit) {
		t.Errorf("after an acquisition: %s too late", l.Deadline().Sub(limit))
	}
	before := l.Deadline()
	fault = proxy.Next(faultproxy.Fault{Match: "LeaseRenew", Delay: late})
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if limit := reached(t, fault).Add(ttl - margin); l.Deadline().After(limit) || !l.Deadline().After(before) {
		t.Errorf("after a renewal: deadline is %s, want it after %s and not after %s", l.Deadline(), before, limit)
	}
}

func TestRenew_EndsWithItsTryWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	pool, proxy := throughProxy(t, 4)
	l := acquire(t, client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: 3 * time.Second}), pgtest.Name(t), nil)
	if err := l.Renew(t.Context()); err != nil { // it has its connection now
		t.Fatal(err)
	}
	proxy.SetStall(true)
	t.Cleanup(func() { proxy.SetStall(false) })
	began := time.Now()
	err := l.Renew(t.Context())
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s, want half of RenewEvery", took)
	}
	if err == nil || errors.Is(err, pglock.ErrLost) || l.Err() != nil {
		t.Errorf("Renew: %v, Err: %v; want an error that leaves the lease as it is", err, l.Err())
	}
}
