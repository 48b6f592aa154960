package pglock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestModel_OfALease walks at random through what can happen to one name: three clients
// that acquire, renew, fence, release and give their sequencers away, while leases lapse.
// After each step the answer and the row are what the model says.
func TestModel_OfALease(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(12))
	looks := pgtest.ReadCommitted(t)                                          // the model's own must not be conflicts
	cfg := pglock.Config{TTL: time.Hour, PollInterval: 50 * time.Millisecond} // no heartbeat comes between
	clients := []*pglock.Client{client(t, pool, cfg), client(t, pool, cfg), client(t, pool, cfg)}
	notes := table(t, looks)
	rapid.Check(t, func(r *rapid.T) {
		m := &leaseModel{t: t, pool: looks, clients: clients, name: pgtest.Name(t), notes: notes}
		defer m.end()
		r.Repeat(rapid.StateMachineActions(m))
	})
}

// leaseModel is the protocol in plain words, next to the real thing.
type leaseModel struct {
	t           *testing.T
	pool        *pgxpool.Pool
	clients     []*pglock.Client
	name, notes string

	token   int64  // of the last acquisition
	current *grant // who holds the name, perhaps lapsed
	lapsed  bool
	grants  []*grant
	open    []fencing // fenced transactions
	writes  int
}

// grant is one acquisition.
type grant struct {
	*pglock.Lease
	released bool  // by its owner
	lost     error // what its owner was told
}

type fencing struct {
	pgx.Tx
	by *grant
}

func (m *leaseModel) end() {
	for _, f := range m.open {
		_ = f.Rollback(context.Background())
	}
	for _, g := range m.grants {
		_ = g.Release(context.Background())
	}
}

// Check compares the row.
func (m *leaseModel) Check(r *rapid.T) {
	if m.token == 0 {
		return
	}
	got := row(m.t, m.pool, m.name)
	live := m.current != nil && !m.lapsed
	if got.Token != m.token || got.Held != (m.current != nil) || got.Expires.After(got.Now) != live || got.Transitions != int64(len(m.grants)) {
		r.Fatalf("row is %+v; want token %d, held %t, live %t, %d transitions", got, m.token, m.current != nil, live, len(m.grants))
	}
	if n := value[int](m.t, m.pool, "SELECT count(*) FROM "+m.notes+" WHERE note = $1", m.name); n != m.writes {
		r.Fatalf("%d writes are there, want %d", n, m.writes)
	}
}

// TryAcquire is granted where the name is free or lapsed and no fence is open.
func (m *leaseModel) TryAcquire(r *rapid.T) {
	m.acquire(r, func(c *pglock.Client) (*pglock.Lease, error) { return c.TryAcquire(m.t.Context(), m.name, nil) })
}

// Acquire is the same, for a caller that hardly waits.
func (m *leaseModel) Acquire(r *rapid.T) {
	m.acquire(r, func(c *pglock.Client) (*pglock.Lease, error) {
		return c.Acquire(m.t.Context(), m.name, &pglock.AcquireOptions{Wait: time.Millisecond})
	})
}

func (m *leaseModel) acquire(r *rapid.T, call func(*pglock.Client) (*pglock.Lease, error)) {
	live := m.current != nil && !m.lapsed
	l, err := call(rapid.SampledFrom(m.clients).Draw(r, "client"))
	if live || len(m.open) > 0 {
		held, ok := errors.AsType[*pglock.HeldError](err)
		if !ok || held.Token != m.token || held.Fenced == live {
			r.Fatalf("%v (%+v); want it to be held under %d, and fenced: %t", err, held, m.token, !live)
		}
		return
	}
	if err != nil || l.Token() <= m.token {
		r.Fatalf("%v, %v; want a token above %d", l, err, m.token)
	}
	g := &grant{Lease: l}
	m.token, m.current, m.lapsed, m.grants = l.Token(), g, false, append(m.grants, g)
}

// Lapse is a holder that was stopped for long.
func (m *leaseModel) Lapse(r *rapid.T) {
	if m.current == nil || m.lapsed {
		r.Skip("nothing to lapse")
	}
	expire(m.t, m.pool, m.name)
	m.lapsed = true
}

// truth is what the database says of a grant: nil, or why it is refused.
func (m *leaseModel) truth(g *grant) error {
	switch {
	case g == m.current && !m.lapsed:
		return nil
	case g == m.current:
		return pglock.ErrExpired
	default:
		return pglock.ErrSuperseded
	}
}

// any is a grant of now or before.
func (m *leaseModel) any(r *rapid.T) *grant {
	if len(m.grants) == 0 {
		r.Skip("no grant yet")
	}
	return m.grants[rapid.IntRange(max(0, len(m.grants)-3), len(m.grants)-1).Draw(r, "grant")]
}

// Renew is refused once and for all.
func (m *leaseModel) Renew(r *rapid.T) {
	g := m.any(r)
	if g.lost == nil {
		g.lost = m.truth(g)
	}
	m.same(r, g.Renew(m.t.Context()), g.lost)
	m.same(r, g.Err(), g.lost)
}

// Release frees what is still the grant's own, lapsed or not, and nothing else.
func (m *leaseModel) Release(r *rapid.T) {
	g := m.any(r)
	err := g.Lease.Release(m.t.Context())
	switch {
	case g.released:
		m.same(r, err, pglock.ErrReleased)
		return
	case g.lost != nil:
		m.same(r, err, g.lost)
	default:
		m.same(r, err, m.truth(g))
		g.lost, g.released = pglock.ErrReleased, true
	}
	if g == m.current {
		m.current = nil
	}
}

// Fence opens a fenced transaction by whatever way, and leaves it open.
func (m *leaseModel) Fence(r *rapid.T) {
	g := m.any(r)
	if len(m.open) == 3 {
		r.Skip("enough are open")
	}
	want := m.fenceTruth(g)
	tx, err := m.pool.BeginTx(m.t.Context(), pgx.TxOptions{IsoLevel: rapid.SampledFrom(levels).Draw(r, "isolation")})
	if err != nil {
		r.Fatal(err)
	}
	if rapid.Bool().Draw(r, "the lease's own") {
		_ = tx.Rollback(m.t.Context())
		tx, err = g.BeginTx(m.t.Context(), pgx.TxOptions{})
		if g.lost != nil {
			want = g.lost
		} else if err != nil {
			g.lost = m.truth(g)
		}
	} else {
		err = pglock.Fence(m.t.Context(), tx, g.Sequencer())
	}
	switch { // before the verdict, after which nobody would end it
	case err == nil:
		m.open = append(m.open, fencing{tx, g})
	case tx != nil:
		_ = tx.Rollback(m.t.Context())
	}
	m.refused(r, err, want)
}

// fenceTruth tells a released lease, where the row says no more of it, from a
// superseded one.
func (m *leaseModel) fenceTruth(g *grant) error {
	if m.current == nil && g.Token() == m.token {
		return pglock.ErrReleased
	}
	return m.truth(g)
}

// InTx is a fenced transaction of a process that was handed the sequencer.
func (m *leaseModel) InTx(r *rapid.T) {
	g := m.any(r)
	want := m.fenceTruth(g)
	err := rapid.SampledFrom(m.clients).Draw(r, "client").InTx(m.t.Context(), g.Sequencer(), func(tx pgx.Tx) error {
		return insert(m.t.Context(), tx, m.notes, m.name)
	})
	m.refused(r, err, want)
	if err == nil {
		m.writes++
	}
}

// End writes in an open fenced transaction and commits it, or rolls it back. Nobody has
// acquired the name since its fence, whatever else happened.
func (m *leaseModel) End(r *rapid.T) {
	if len(m.open) == 0 {
		r.Skip("none is open")
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(r, "transaction")
	f := m.open[i]
	if f.by.Token() != m.token {
		r.Fatalf("token %d is fenced, and %d was granted", f.by.Token(), m.token)
	}
	if err := insert(m.t.Context(), f, m.notes, m.name); err != nil {
		r.Fatal(err)
	}
	if rapid.Bool().Draw(r, "commit") {
		if err := f.Commit(m.t.Context()); err != nil {
			r.Fatal(err)
		}
		m.writes++
	} else {
		_ = f.Rollback(m.t.Context())
	}
	m.open = slices.Delete(m.open, i, i+1)
}

func (m *leaseModel) same(r *rapid.T, got, want error) {
	if (want == nil) != (got == nil) || want != nil && (!errors.Is(got, want) || !errors.Is(got, pglock.ErrLost)) {
		r.Fatalf("%v; want %v", got, want)
	}
}

func (m *leaseModel) refused(r *rapid.T, got, want error) {
	if (want == nil) != (got == nil) || want != nil && (!errors.Is(got, want) || !errors.Is(got, pglock.ErrFenced)) {
		r.Fatalf("%v; want %v", got, want)
	}
}
