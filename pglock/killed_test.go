package pglock_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// killing is one way to die: each leaves the name to the next holder in time, and
// what the dead one had sent before, and arrives after that, changes nothing.
type killing struct {
	t     *testing.T
	pool  *pgxpool.Pool
	dead  *puppet
	proxy *faultproxy.Proxy
	next  *pglock.Client
	// waiting is the next holder's wait, if it began before the death.
	waiting <-chan *pglock.Lease
}

// killedAt are the steps to die at.
var killedAt = map[string]struct {
	until  func(*killing)
	limit  time.Duration // of the takeover, besides the poll and the slack
	grants int64         // to the dead one
}{
	"before its request to acquire arrives": {func(k *killing) {
		k.hold(faultproxy.Fault{Match: "LeaseInsert", Lose: true}, "try")
	}, 0, 0},
	"before the answer to it arrives": {func(k *killing) {
		k.hold(faultproxy.Fault{Match: "LeaseInsert"}, "try")
	}, short, 1},
	"while it holds": {func(k *killing) {
		k.dead.must(k.t, "try")
		k.wait()
	}, short, 1},
	"inside a fenced transaction": {func(k *killing) {
		k.dead.must(k.t, "try")
		k.dead.must(k.t, "begin")
		k.wait()
	}, short, 1},
	"inside a statement of a fenced transaction": {func(k *killing) {
		k.dead.must(k.t, "try")
		k.dead.must(k.t, "begin")
		k.dead.tell(k.t, "SELECT pg_sleep(30)")
		k.wait()
	}, short + killedLimit, 1},
	"before its request to release arrives": {func(k *killing) {
		k.dead.must(k.t, "try")
		k.wait()
		k.hold(faultproxy.Fault{Match: "LeaseFree", Lose: true}, "release")
	}, short, 1},
	"before the answer to it arrives, and so before it wakes the next": {func(k *killing) {
		k.dead.must(k.t, "try")
		k.wait()
		k.hold(faultproxy.Fault{Match: "LeaseFree"}, "release")
	}, 0, 1},
}

// killedLimit is the FenceTimeout of those who are killed: longer than their TTL.
const killedLimit = 2500 * time.Millisecond

func TestKilledHolder_IsTakenOverAndLeavesNoGhost(t *testing.T) {
	t.Parallel()
	for step, kill := range killedAt {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			k := &killing{t: t, pool: pool, proxy: faultproxy.New(t, pgtest.URL(t)), next: client(t, pool, pglock.Config{})}
			k.dead = startPuppet(t, pool, role{Proxy: k.proxy.Address(), TTL: short, FenceTimeout: killedLimit})
			kill.until(k)
			k.dead.kill(t)
			died := clock(t, pool)
			if k.waiting == nil {
				k.waiting = granted(t, k.next, k.dead.Name)
			}
			l := within(t, 20*time.Second, k.waiting)
			grantedBy(t, pool, k.dead.Name, died, kill.limit+time.Second+slack)

			k.proxy.SetStall(false) // what was held up goes on
			eventually(t, "the end of its sessions", 20*time.Second, func() bool { return k.dead.sessions(t, pool) == 0 })
			r := row(t, pool, k.dead.Name)
			if !r.Held || r.Token != l.Token() || r.Transitions != kill.grants+1 {
				t.Errorf("afterwards the row is %+v, want the next holder's after %d grants", r, kill.grants)
			}
			writeAs(t, l, k.dead.Table, "next")
			if got := notes(t, pool, k.dead.Table); got != "next" {
				t.Errorf("written: %s", got)
			}
			release(t, l)
			if row(t, pool, k.dead.Name).Held {
				t.Error("a ghost holds it after the release")
			}
		})
	}
}

// hold gives a command that stalls half-way.
func (k *killing) hold(f faultproxy.Fault, command string) {
	k.t.Helper()
	f.Hold = true
	fault := k.proxy.Next(f)
	k.dead.tell(k.t, command)
	reached(k.t, fault)
	if !f.Lose { // the server has done it before its reply is held up
		eventually(k.t, "the reply", 10*time.Second, k.proxy.Stalls)
	}
}

// wait begins the next holder's wait.
func (k *killing) wait() {
	k.t.Helper()
	k.waiting = granted(k.t, k.next, k.dead.Name)
	registered(k.t, k.pool, k.dead.Name, 1)
}

// A wake can be for a process that is dead: its row is still there.
func TestKilledWaiter_CostsTheNextOneAPoll(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	p := startPuppet(t, pool, role{TTL: time.Minute})
	holder := acquire(t, client(t, pool, slowPoll), p.Name, nil)
	p.tell(t, "wait")
	registered(t, pool, p.Name, 1)
	waiting := granted(t, client(t, pool, pglock.Config{}), p.Name)
	registered(t, pool, p.Name, 2)
	p.kill(t)
	eventually(t, "the end of its sessions", 20*time.Second, func() bool { return p.sessions(t, pool) == 0 })
	release(t, holder)
	released := clock(t, pool)
	next := within(t, 20*time.Second, waiting)
	grantedBy(t, pool, p.Name, released, time.Second+slack)
	if r := row(t, pool, p.Name); r.Token != next.Token() || r.Transitions != 2 {
		t.Errorf("the row is %+v, want the next holder's", r)
	}
}
