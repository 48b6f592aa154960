//go:build linux

package faults_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	seed    = flag.Uint64("faults.seed", 1, "the first seed of the fault suite; its runs count up from it")
	long    = flag.Duration("faults.for", 4*time.Second, "how long a run of the fault suite makes faults")
	seeds   = flag.Int("faults.seeds", 1, "how many runs each scenario of the fault suite has")
	soak    = flag.Duration("faults.soak", 0, "how long the soak test of the fault suite runs; 0: not at all")
	picture = flag.String("faults.picture", "", "an HTML file for porcupine's picture of a history that it refuses")
)

// scenario is what a run is made of.
type scenario struct {
	seed         uint64
	length       time.Duration
	workers      int
	names        []string
	species      []species
	ttl          time.Duration
	fenceTimeout time.Duration
	poll         time.Duration
	defaults     map[string]string // of the database's sessions
	once         *fault            // one that comes besides the others
	withStandby  bool
	guards       bool     // on the table of the fenced writes, and an intruder
	env          []string // of the server
	clock        string   // the file that steps its clock; empty: it is the machine's
}

// newScenario is the usual one of a seed. The seed also chooses what the database's
// sessions begin with.
func newScenario(seed uint64) scenario {
	random := rand.New(rand.NewPCG(seed, 1))
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	return scenario{
		seed: seed, length: *long, workers: 5, names: []string{"alpha", "beta", "gamma"}, species: allSpecies,
		guards: seed%2 == 0, // not always: a guard would make up for a fence that isn't one
		ttl:    800 * time.Millisecond, fenceTimeout: 2 * time.Second, poll: 250 * time.Millisecond,
		defaults: map[string]string{
			"default_transaction_isolation": string(levels[seed%3]),
			"synchronous_commit":            pick(random, []string{"on", "off"}),
		},
	}
}

// stepped says that the server's clock was, and can't be held against ours.
func (s scenario) stepped() bool { return s.clock != "" }

// needsTime skips a test in a short run.
func needsTime(t *testing.T) {
	t.Helper()
	if *long < 10*time.Second {
		t.Skip("it takes a while: -faults.for=20s")
	}
}

// conduct makes a run of a scenario and checks it.
func (s scenario) conduct(t *testing.T) {
	t.Helper()
	t.Logf("seed %d: %v", s.seed, s.defaults)
	c := &conductor{scenario: s, t: t, cluster: newCluster(t, s.defaults, s.env), dir: t.ArtifactDir(), kinds: map[string]species{}}
	if s.withStandby {
		c.cluster.ahead(t, s.names[1:])
		c.failover = c.cluster.follow(t)
	}
	for _, kind := range s.species {
		c.kinds[kind.name] = kind
	}
	c.run()
	h, err := readHistory(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	c.check(h)
}
