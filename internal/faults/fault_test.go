//go:build linux

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one fault of a schedule.
type fault struct {
	Kind   string
	At     time.Duration // since the start of the run
	For    time.Duration
	Worker int    // whom it hits; -1: the server, and so all
	Dice   uint64 // for what is left to choose
}

func (f fault) String() string {
	whom := "server"
	if f.Worker >= 0 {
		whom = fmt.Sprintf("w%d", f.Worker)
	}
	return fmt.Sprintf("%8s  %-16s %-6s %s", f.At.Round(time.Millisecond), f.Kind, whom, f.For.Round(time.Millisecond))
}

// species is a kind of fault.
type species struct {
	name        string
	weight      int
	server      bool    // it hits the server
	least, most float64 // how long it takes, in TTLs
	inject      func(*conductor, fault)
}

// allSpecies are the faults that any server can have.
var allSpecies = []species{
	{"kill", 6, false, 0, 0.5, (*conductor).kill},
	{"stop", 10, false, 0.1, 3, (*conductor).stop},
	{"long stop", 2, false, 2, 10, (*conductor).stop},
	{"starved", 4, false, 0.5, 3, (*conductor).starve},
	{"client clock", 4, false, 0.5, 3, (*conductor).shift},
	{"delay", 3, false, 0.5, 2, (*conductor).delay},
	{"stall", 8, false, 0.1, 3, (*conductor).stall},
	{"cut", 4, false, 0, 0, (*conductor).cut},
	{"lost message", 6, false, 0, 0, (*conductor).lose},
	{"backend killed", 6, false, 0, 0, (*conductor).terminate},
	{"exhausted pool", 2, false, 0.5, 3, (*conductor).hog},
	{"hung fence", 2, false, 1, 4, (*conductor).hang},
	{"prepared", 1, false, 1, 3, (*conductor).prepare},
	{"backends killed", 2, true, 0, 0, (*conductor).terminateAll},
	{"crash", 2, true, 0, 0, (*conductor).crash},
}

// schedule is what a seed makes of a length of time: faults of one worker don't
// overlap, nor do those of the server, and one worker is left alone.
func schedule(random *rand.Rand, of []species, workers int, length, ttl time.Duration) []fault {
	var plan []fault
	busy := map[int]time.Duration{} // until when
	for at := ttl / 2; at < length-ttl/4; at += between(random, ttl/50, ttl/4) {
		s := roll(random, of)
		f := fault{Kind: s.name, At: at, Worker: free(random, busy, workers, at), Dice: random.Uint64()}
		most := min(time.Duration(s.most*float64(ttl)), length-at)
		f.For = between(random, min(most, time.Duration(s.least*float64(ttl))), most)
		rest := ttl / 10
		if s.server {
			f.Worker, rest = -1, 3*ttl
			if at < busy[-1] {
				continue
			}
		} else if f.Worker < 0 {
			continue
		}
		busy[f.Worker] = at + f.For + rest
		plan = append(plan, f)
	}
	return plan
}

// free is a worker that has no fault, unless it is the last one; -1 then.
func free(random *rand.Rand, busy map[int]time.Duration, workers int, at time.Duration) int {
	var some []int
	for w := range workers {
		if busy[w] <= at {
			some = append(some, w)
		}
	}
	if len(some) < 2 {
		return -1
	}
	return pick(random, some)
}

// without are allSpecies but some.
func without(names ...string) []species {
	return slices.DeleteFunc(slices.Clone(allSpecies), func(s species) bool { return slices.Contains(names, s.name) })
}

// roll picks a species by weight.
func roll(random *rand.Rand, of []species) species {
	total := 0
	for _, s := range of {
		total += s.weight
	}
	n := random.IntN(total)
	for _, s := range of {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("weights")
}
