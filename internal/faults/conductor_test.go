//go:build linux

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
)

// conductor runs the workers and makes the faults.
type conductor struct {
	scenario
	t         *testing.T
	cluster   *cluster
	dir       string
	processes []*process
	kinds     map[string]species

	failover *failover // nil: there is no standby
	intruder *intruder // nil: no table is guarded

	mu   sync.Mutex
	past []event
}

// event is a fault that happened.
type event struct {
	fault
	from, to int64 // as now tells it
}

// run is a whole run, but for the checks.
func (c *conductor) run() {
	c.t.Helper()
	random := rand.New(rand.NewPCG(c.seed, 0))
	stop := func() {}
	if c.guards {
		c.guard()
		c.intruder, stop = c.intrude(c.t.Context())
	}
	c.hire()
	start := time.Now()
	plan := schedule(random, c.species, c.workers, c.length, c.ttl)
	if c.once != nil {
		plan = append(plan, *c.once)
		slices.SortFunc(plan, func(a, b fault) int { return int(a.At - b.At) })
	}
	var faults sync.WaitGroup
	for _, f := range plan {
		pause(c.t.Context(), time.Until(start.Add(f.At)))
		faults.Go(func() { c.make(f) })
	}
	pause(c.t.Context(), time.Until(start.Add(c.length)))
	faults.Wait()
	c.retire()
	stop()
}

// hire starts the workers, each behind a proxy of its own.
func (c *conductor) hire() {
	for i := range c.workers {
		proxy := faultproxy.New(c.t, c.cluster.server().URL(""))
		p := &process{proxy: proxy, role: role{
			Number: i, Seed: c.seed, URL: c.cluster.server().URL(""), Proxy: proxy.Address(), Dir: c.dir,
			Names: c.names, TTL: c.ttl, FenceTimeout: c.fenceTimeout, Poll: c.poll,
		}}
		p.live(c.t)
		c.t.Cleanup(p.kill)
		c.processes = append(c.processes, p)
	}
}

// make makes one fault, and notes when.
func (c *conductor) make(f fault) {
	e := event{fault: f, from: now()}
	c.kinds[f.Kind].inject(c, f)
	e.to = now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = append(c.past, e)
}

// retire heals everything, ends the workers and settles what is left open.
func (c *conductor) retire() {
	c.t.Helper()
	var all sync.WaitGroup
	for _, p := range c.processes {
		p.proxy.SetLatency(0)
		p.proxy.SetStall(false)
		p.signal(syscall.SIGCONT)
		all.Go(func() {
			if !p.retire() {
				c.t.Errorf("L: worker %s did not end in %s", p.name(), 2*endWithin)
			}
		})
	}
	all.Wait()
	c.settle("")
	c.cluster.quiet(c.t)
}

// wait lets a fault last.
func (c *conductor) wait(f fault) { pause(c.t.Context(), f.For) }

func (c *conductor) kill(f fault) {
	p := c.processes[f.Worker]
	p.turn.Lock() // a kill that comes before the next life would miss it, and a second one begin
	defer p.turn.Unlock()
	p.kill()
	c.wait(f)
	p.live(c.t)
}

func (c *conductor) stop(f fault) {
	c.processes[f.Worker].signal(syscall.SIGSTOP)
	c.wait(f)
	c.processes[f.Worker].signal(syscall.SIGCONT)
}

// starve gives it a tenth of the time, in slices, as a cgroup that is over its share.
func (c *conductor) starve(f fault) {
	const run, wait = 5 * time.Millisecond, 45 * time.Millisecond
	for end := time.Now().Add(f.For); time.Now().Before(end); {
		c.processes[f.Worker].signal(syscall.SIGSTOP)
		pause(c.t.Context(), wait)
		c.processes[f.Worker].signal(syscall.SIGCONT)
		pause(c.t.Context(), run)
	}
}

// shift steps a worker's wall clock by an hour, and back.
func (c *conductor) shift(f fault) {
	hours := []string{"1h", "-1h"}
	c.processes[f.Worker].order("clock " + hours[f.Dice%2])
	c.wait(f)
	c.processes[f.Worker].order("clock 0s")
}

func (c *conductor) delay(f fault) {
	c.processes[f.Worker].proxy.SetLatency(time.Duration(1+f.Dice%40) * time.Millisecond)
	c.wait(f)
	c.processes[f.Worker].proxy.SetLatency(0)
}

func (c *conductor) stall(f fault) {
	c.processes[f.Worker].proxy.SetStall(true)
	c.wait(f)
	c.processes[f.Worker].proxy.SetStall(false)
}

func (c *conductor) cut(f fault) { c.processes[f.Worker].proxy.Break() }

// lose loses the next message that has a certain text, or its answer, with the
// connection.
func (c *conductor) lose(f fault) {
	texts := []string{"commit", "gatepost.leases", "gatepost.idempotency_keys", "INSERT INTO faults", "begin"}
	c.processes[f.Worker].proxy.Next(faultproxy.Fault{Match: texts[f.Dice%5], Lose: f.Dice/5%3 == 0})
}

// The server may be down when one of these comes: then it was no fault.

func (c *conductor) terminate(f fault) {
	_ = c.cluster.try(c.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = $1 ORDER BY state <> 'active', random() LIMIT 2`, fmt.Sprintf("w%d", f.Worker))
}

func (c *conductor) terminateAll(fault) {
	_ = c.cluster.try(c.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^w[0-9]'`)
}

func (c *conductor) crash(f fault) { c.cluster.restart(c.t, crash(f.Dice%3)) }

func (c *conductor) hog(f fault) {
	c.processes[f.Worker].order("hog " + f.For.String())
	c.wait(f)
}

func (c *conductor) hang(f fault) {
	c.processes[f.Worker].order("hang " + f.For.String())
	c.wait(f)
}

// prepare has a worker prepare a fenced write and lose sight of it.
func (c *conductor) prepare(f fault) {
	gid := fmt.Sprintf("faults-%d", f.Dice)
	c.processes[f.Worker].order("prepare " + gid)
	c.wait(f)
	c.settle(gid)
}

// settle commits a prepared transaction, or all of them.
func (c *conductor) settle(gid string) {
	ctx := c.t.Context()
	rows, err := c.cluster.admin().Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE $1 IN ('', gid)`, gid)
	if err != nil {
		return
	}
	var gids []string
	for rows.Next() {
		if rows.Scan(&gid) == nil {
			gids = append(gids, gid)
		}
	}
	for _, gid := range gids {
		_ = c.cluster.try(ctx, "COMMIT PREPARED '"+gid+"'")
	}
}
