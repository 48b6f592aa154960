//go:build linux

package faults_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatepost/gatepost/pglock"
)

// lateRenewals counts renewals that took longer than a try may.
type lateRenewals struct{ atomic.Int64 }

var _ interface {
	pglock.Tracer
	pglock.RenewTracer
} = (*lateRenewals)(nil)

func (*lateRenewals) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}
func (*lateRenewals) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

func (*lateRenewals) TraceRenewStart(ctx context.Context, _ pglock.TraceRenewStartData) context.Context {
	return ctx
}

func (n *lateRenewals) TraceRenewEnd(_ context.Context, data pglock.TraceRenewEndData) {
	if data.Err != nil {
		n.Add(1)
	}
}

// third is a third of a soak in figures.
type third struct {
	took        []time.Duration // a piece of work each
	connections int             // the most
	late        int64           // renewals
	goroutines  int
	leases      int64 // bytes of the table, without its indexes
	keys        int64
	buffers     int64 // that a look-up of one lease touches
}

func (m *third) p(percent int) time.Duration {
	if len(m.took) == 0 {
		return 0
	}
	slices.Sort(m.took)
	return m.took[(len(m.took)-1)*percent/100]
}

func (m *third) String() string {
	return fmt.Sprintf("%d pieces of work, p50 %s, p99 %s, %d connections, %d late renewals, %d goroutines, leases %d KiB, keys %d KiB, %d buffers a look-up",
		len(m.took), m.p(50).Round(10*time.Microsecond), m.p(99).Round(10*time.Microsecond), m.connections, m.late, m.goroutines,
		m.leases>>10, m.keys>>10, m.buffers)
}

// measure adds what the database and the runtime say.
func (s *soaking) measure(m *third) {
	s.t.Helper()
	m.goroutines = runtime.NumGoroutine()
	err := s.admin.QueryRow(s.t.Context(), `SELECT pg_relation_size('gatepost.leases'), pg_relation_size('gatepost.idempotency_keys')`).Scan(&m.leases, &m.keys)
	if err != nil {
		s.t.Error(err)
	}
	var plan []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	const look = `EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT FROM gatepost.leases WHERE name = 'soak/0' AND slot = 0`
	if err := s.admin.QueryRow(s.t.Context(), look).Scan(&plan); err != nil {
		s.t.Error(err)
		return
	}
	m.buffers = plan[0].Plan.Hit + plan[0].Plan.Read
}

// judge holds the thirds against each other.
func (s *soaking) judge(goroutines int) {
	s.t.Helper()
	first, second, last := &s.thirds[0], &s.thirds[1], &s.thirds[2]
	// After a renewal that was given up, others are made in place of the two that
	// renewals go by, which say goodbye for a while.
	for i, m := range s.thirds {
		if most := soakers + 3 + 2*int(m.late); m.connections > most {
			s.t.Errorf("third %d: there were %d connections, %d expected", i+1, m.connections, most)
		}
	}
	if last.p(50) > 3*first.p(50) { // the machine has other things to do
		s.t.Errorf("a piece of work took %s in the end, and %s in the beginning", last.p(50), first.p(50))
	}
	// A version of a row is less than 200 bytes, and each piece of work makes a few of
	// the lease: that is all that a held snapshot may cost.
	if most := first.leases + 1<<20 + int64(len(second.took))*6*200; second.leases > most {
		s.t.Errorf("under a snapshot the leases grew to %d bytes, %d expected", second.leases, most)
	}
	// The vacuum that makes room comes once in a while.
	if most := second.leases + 1<<20; last.leases > most {
		s.t.Errorf("without a snapshot the leases grew on, from %d bytes to %d", second.leases, last.leases)
	}
	s.awaitNone(goroutines)
}

// awaitNone waits until no goroutine and no connection is left.
func (s *soaking) awaitNone(goroutines int) {
	s.t.Helper()
	left, connections := 0, 0
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); pause(s.t.Context(), 20*time.Millisecond) {
		left, connections = runtime.NumGoroutine()-goroutines, s.connections(s.t.Context())
		if left <= 0 && connections == 0 {
			return
		}
	}
	s.t.Errorf("%d goroutines and %d connections are left", left, connections)
}
