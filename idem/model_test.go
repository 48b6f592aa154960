package idem_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestModel_OfAKey walks at random through the table of states of one key, with both
// modes, two requests, attempts that lapse and come back, and a collection. After each
// step the answer, the row and the number of effects are what the model says.
func TestModel_OfAKey(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t) // the collection takes from everybody
	s := holder(t, pool, idem.Config{Lease: time.Hour, MaxBody: 100})
	effects := newLedger(t, pool)
	rapid.Check(t, func(r *rapid.T) {
		m := &keyModel{t: t, pool: pool, store: s, key: newKey(t), effects: effects}
		defer m.end()
		r.Repeat(rapid.StateMachineActions(m))
	})
}

// keyModel is the table of states in plain words, next to the real thing.
type keyModel struct {
	t       *testing.T
	pool    *pgxpool.Pool
	store   *idem.Store
	key     idem.Key
	effects ledger

	state   int // of the row; 0: there is none
	fp      idem.Fingerprint
	reply   idem.Reply
	lapsed  bool // the lease of a running attempt
	expired bool // the record
	owner   *try // whose attempt the row has

	tries   []*try
	open    *uncommitted
	written int
}

// try is one attempt of lease mode.
type try struct {
	*idem.Attempt
	closed bool
}

// uncommitted is a transaction that has run the operation, and hasn't ended.
type uncommitted struct {
	pgx.Tx
	fp    idem.Fingerprint
	reply idem.Reply
}

func (m *keyModel) end() {
	if m.open != nil {
		_ = m.open.Rollback(context.Background())
	}
	for _, a := range m.tries {
		_ = a.Release(context.Background())
	}
}

// Check compares the row and counts the effects.
func (m *keyModel) Check(r *rapid.T) {
	if got := rowOf(m.t, m.pool, m.key); got.State != m.state {
		r.Fatalf("the row is in state %d, want %d", got.State, m.state)
	}
	if n := value[int](m.t, m.pool, "SELECT count(*) FROM "+m.effects.name+" WHERE note = $1", m.key.Key); n != m.written {
		r.Fatalf("%d effects are there, want %d", n, m.written)
	}
}

var requests = []idem.Fingerprint{fp, idem.FingerprintOf([]byte("another"))}

// outcomes of the table; a tombstone is of a body that is too long.
var replies = []idem.Reply{created, {Status: 200, Body: []byte("a\x00\xff")}, {Status: 500, Body: make([]byte, 101)}}

// expect is what the table says of a call, and whether somebody was here before.
func (m *keyModel) expect(f idem.Fingerprint, lease bool) (want event, previous bool) {
	live := m.state == 1 && !m.lapsed
	switch {
	case m.state == 0 || m.expired && !live:
		want = ran
	case f != m.fp:
		return mismatch, false
	case m.state == 2:
		return replayed, false
	case m.state == 3:
		return unavailable, false
	case m.state == 4:
		want, previous = ran, lease
	case lease && m.lapsed:
		want, previous = ran, true
	default:
		return inProgress, false
	}
	if m.open != nil { // it has the key until it ends
		return inProgress, false
	}
	return want, previous
}

// done is what a stored reply does to the row.
func (m *keyModel) done(f idem.Fingerprint, reply idem.Reply) {
	m.state, m.fp, m.reply, m.lapsed, m.expired, m.owner = 2, f, reply, false, false, nil
	if len(reply.Body) > 100 {
		m.state = 3
	}
	m.written++
}

// Do runs the operation in a transaction of the store's own.
func (m *keyModel) Do(r *rapid.T) {
	f, reply := rapid.SampledFrom(requests).Draw(r, "request"), rapid.SampledFrom(replies).Draw(r, "reply")
	want, _ := m.expect(f, false)
	got, err := m.store.Do(m.t.Context(), m.key, f, nil, m.effects.write(m.key.Key, reply, nil))
	m.answered(r, got, err, want, reply)
	if want == ran {
		m.done(f, reply)
	}
}

// DoAndFail is an operation that fails: the key is as it was.
func (m *keyModel) DoAndFail(r *rapid.T) {
	f, failed := rapid.SampledFrom(requests).Draw(r, "request"), errors.New("failed")
	want, _ := m.expect(f, false)
	got, err := m.store.Do(m.t.Context(), m.key, f, nil, m.effects.write(m.key.Key, idem.Reply{}, failed))
	if want == ran {
		if !errors.Is(err, failed) {
			r.Fatalf("%v; want the function's error", err)
		}
		return
	}
	m.answered(r, got, err, want, idem.Reply{})
}

func (m *keyModel) answered(r *rapid.T, got idem.Result, err error, want event, reply idem.Reply) {
	if want == replayed {
		reply = m.reply
	}
	if eventOf(got, err) != want || err == nil && !reflect.DeepEqual(got.Reply, reply) {
		r.Fatalf("%s, %+v; want %s, %+v", eventOf(got, err), got.Reply, want, reply)
	}
}

// DoTx runs it in a transaction that stays open.
func (m *keyModel) DoTx(r *rapid.T) {
	if m.open != nil {
		r.Skip("one is open")
	}
	f, reply := rapid.SampledFrom(requests).Draw(r, "request"), rapid.SampledFrom(replies).Draw(r, "reply")
	want, _ := m.expect(f, false)
	tx, err := m.pool.BeginTx(m.t.Context(), orReadCommitted(pgx.TxOptions{}))
	if err != nil {
		r.Fatal(err)
	}
	got, err := m.store.DoTx(m.t.Context(), tx, m.key, f, nil, m.effects.write(m.key.Key, reply, nil))
	if eventOf(got, err) == ran { // before the verdict, after which nobody would end it
		m.open = &uncommitted{tx, f, reply}
	} else {
		_ = tx.Rollback(m.t.Context())
	}
	m.answered(r, got, err, want, reply)
}

// EndTx commits it, or rolls it back.
func (m *keyModel) EndTx(r *rapid.T) {
	if m.open == nil {
		r.Skip("none is open")
	}
	open := m.open
	m.open = nil
	if !rapid.Bool().Draw(r, "commit") {
		_ = open.Rollback(m.t.Context())
		return
	}
	if err := open.Commit(m.t.Context()); err != nil {
		r.Fatal(err)
	}
	m.done(open.fp, open.reply)
}

// Begin claims the key for an attempt of lease mode.
func (m *keyModel) Begin(r *rapid.T) {
	f := rapid.SampledFrom(requests).Draw(r, "request")
	want, previous := m.expect(f, true)
	a, err := m.store.Begin(m.t.Context(), m.key, f)
	if err != nil {
		m.answered(r, idem.Result{}, err, want, idem.Reply{})
		return
	}
	if reply, replay := a.Replay(); replay {
		m.answered(r, idem.Result{Reply: reply, Replayed: true}, nil, want, reply)
		return
	}
	if want != ran || a.Previous() != previous {
		r.Fatalf("claimed, and somebody was here before: %t; want %s, %t", a.Previous(), want, previous)
	}
	m.state, m.fp, m.lapsed, m.expired, m.owner = 1, f, false, false, &try{Attempt: a}
	m.tries = append(m.tries, m.owner)
}

// any is an attempt of now or before. While a transaction has the row, it would wait.
func (m *keyModel) any(r *rapid.T) *try {
	if len(m.tries) == 0 || m.open != nil {
		r.Skip("no attempt")
	}
	return m.tries[rapid.IntRange(max(0, len(m.tries)-3), len(m.tries)-1).Draw(r, "attempt")]
}

// Finish is for whoever the row belongs to, lapsed or not.
func (m *keyModel) Finish(r *rapid.T) {
	a, reply := m.any(r), rapid.SampledFrom(replies).Draw(r, "reply")
	err := a.Attempt.Finish(m.t.Context(), reply, func(tx pgx.Tx) error {
		_, err := m.effects.write(m.key.Key, reply, nil)(m.t.Context(), tx)
		return err
	})
	switch {
	case a.closed:
		m.is(r, err, idem.ErrEnded)
	case a == m.owner:
		m.is(r, err, nil)
		a.closed = true
		m.done(m.fp, reply)
	default:
		m.is(r, err, idem.ErrFenced)
	}
}

// Release gives back what is still the attempt's own.
func (m *keyModel) Release(r *rapid.T) {
	a := m.any(r)
	err := a.Attempt.Release(m.t.Context())
	switch {
	case a.closed:
		m.is(r, err, nil)
	case a == m.owner:
		m.is(r, err, nil)
		m.state, m.lapsed, m.expired, m.owner = 4, false, false, nil
	default:
		m.is(r, err, idem.ErrFenced)
	}
	a.closed = true
}

func (m *keyModel) is(r *rapid.T, got, want error) {
	if !errors.Is(got, want) {
		r.Fatalf("%v; want %v", got, want)
	}
}

// Lapse is a holder that was stopped for long.
func (m *keyModel) Lapse(r *rapid.T) {
	if m.state != 1 || m.open != nil {
		r.Skip("nobody holds it")
	}
	exec(m.t, m.pool, `UPDATE gatepost.idempotency_keys SET lease_until = clock_timestamp() - interval '1 s' WHERE key = $1`, m.key.Key)
	m.lapsed = true
}

// Expire is the end of the retention.
func (m *keyModel) Expire(r *rapid.T) {
	if m.state == 0 || m.open != nil {
		r.Skip("there is no record")
	}
	exec(m.t, m.pool, `UPDATE gatepost.idempotency_keys SET expires_at = clock_timestamp() - interval '1 s' WHERE key = $1`, m.key.Key)
	m.expired = true
}

// GC removes what has expired and is not live; the clock had decided before.
func (m *keyModel) GC(r *rapid.T) {
	if m.open != nil {
		r.Skip("a transaction has the row")
	}
	if _, err := m.store.GC(m.t.Context()); err != nil {
		r.Fatal(err)
	}
	if m.expired && (m.state != 1 || m.lapsed) {
		m.gone()
	}
}

// Forget is an operator's.
func (m *keyModel) Forget(r *rapid.T) {
	err := m.store.Forget(m.t.Context(), m.key)
	switch {
	case m.open != nil || m.state == 1 && !m.lapsed:
		m.is(r, err, idem.ErrInProgress)
	case m.state == 0:
		m.is(r, err, idem.ErrNotFound)
	default:
		m.is(r, err, nil)
		m.gone()
	}
}

func (m *keyModel) gone() {
	m.state, m.lapsed, m.expired, m.owner = 0, false, false, nil
}
