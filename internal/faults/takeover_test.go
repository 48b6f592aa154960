//go:build linux

package faults_test

import (
	"fmt"
	"strings"
	"time"
)

const takeover = "L  takeover"

// slack is what a takeover may take longer than a poll, besides what the machine made
// everybody wait.
const slack = 250 * time.Millisecond

// A term is what the database knows of one acquisition that was not released.
type term struct {
	name, nonce   string
	token         int64
	expires, next int64 // when it lapsed and when the next one was granted; on our clock
}

// takenOver: a lease that lapsed is granted to whoever waits for it within a poll. A
// fenced transaction that is open keeps it out until it ends, FenceTimeout at most.
func (e *evidence) takenOver() {
	if e.stepped() {
		return
	}
	asleep := e.h.of(hiccup)
	for _, lapsed := range e.terms() {
		from := max(lapsed.expires, e.fenceEnd(lapsed))
		limit := int64(e.poll + slack)
		if !e.waited(lapsed.name, from, min(lapsed.next, from+limit)) {
			continue
		}
		e.look(takeover, 1)
		limit += overlap(asleep, from, lapsed.next)
		if took := lapsed.next - from; took > limit {
			e.violated(takeover, "%s: token %d was taken over after %d ms, %d ms allowed", lapsed.name, lapsed.token, took/1e6, limit/1e6)
		}
	}
}

// terms are those that lapsed and were followed by another.
func (e *evidence) terms() (all []term) {
	offset := wallOffset()
	var t term
	e.query(`
		SELECT name, old_nonce::text, old_token, (extract(epoch FROM old_expires) * 1000000)::bigint, (extract(epoch FROM acquired) * 1000000)::bigint
		FROM faults.changes WHERE what = 'grant' AND old_nonce IS NOT NULL`, nil,
		[]any{&t.name, &t.nonce, &t.token, &t.expires, &t.next}, func() {
			t.expires, t.next = t.expires*1000-offset, t.next*1000-offset
			all = append(all, t)
		})
	return all
}

// fenceEnd is until when a fenced transaction of a term may keep others out: one whose
// outcome is unknown to its worker may be open on the server for FenceTimeout. Where a
// fault hit the worker, it may have done a statement in that time, and the idle time
// after it counts anew (before PostgreSQL 17).
func (e *evidence) fenceEnd(t term) (last int64) {
	for _, o := range e.h.of(write, deliver) {
		if o.Nonce != t.nonce || o.Call > t.next {
			continue
		}
		limit := int64(e.fenceTimeout)
		if e.disturbed(o.Worker, o.Call, o.Call+2*limit) {
			limit *= 2
		}
		end := o.Call + limit
		if o.Result == ok || o.Result == "fenced" {
			end = min(end, o.Return)
		}
		last = max(last, end)
	}
	return min(last, t.next)
}

// waited says whether somebody waited for a name all that time, and nothing kept him
// from getting it.
func (e *evidence) waited(name string, from, to int64) bool {
	for _, o := range e.h.of(acquire) {
		waited := o.Name == name && o.Call < from-int64(e.poll) && o.end() >= to && o.Return != 0
		if waited && !e.disturbed(o.Worker, from, to) {
			return true
		}
	}
	return false
}

// disturbed says whether there was, at that time or a little before, a fault of the
// server or of that worker, or a prepared transaction, which keeps everybody out.
func (e *evidence) disturbed(worker string, from, to int64) bool {
	for _, p := range e.past {
		before := int64(e.poll)
		switch {
		case p.Worker < 0: // everybody finds his way back
			before = int64(2 * e.ttl)
		case p.Kind == "lost message": // it waits for its message
			before = int64(3 * e.ttl)
		}
		hit := p.Worker < 0 || p.Kind == "prepared" || strings.HasPrefix(worker, fmt.Sprintf("w%d.", p.Worker))
		if hit && p.from < to && p.to > from-before {
			return true
		}
	}
	return false
}
