//go:build linux

package faults_test

import (
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
	if e.stepped {
		return
	}
	asleep := e.h.of(hiccup)
	for _, lapsed := range e.terms() {
		from := max(lapsed.expires, e.fenceEnd(lapsed))
		limit := int64(e.poll + slack)
		if !e.waited(lapsed.name, from, from+limit) || e.disturbed(from-int64(e.ttl), from+limit) {
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

// fenceEnd is until when a fenced transaction of a term may keep others out.
func (e *evidence) fenceEnd(t term) (last int64) {
	for _, o := range e.h.of(write, deliver) {
		if o.Nonce == t.nonce && o.Call < t.next {
			last = max(last, min(o.end(), o.Call+int64(e.fenceTimeout)))
		}
	}
	return min(last, t.next)
}

// waited says whether somebody waited for a name all that time.
func (e *evidence) waited(name string, from, to int64) bool {
	for _, o := range e.h.of(acquire) {
		if o.Name == name && o.Call < from-int64(e.poll) && o.end() > to && o.Return != 0 {
			return true
		}
	}
	return false
}

// disturbed says whether a fault other than a death was going on.
func (e *evidence) disturbed(from, to int64) bool {
	for _, p := range e.past {
		if p.Kind != "kill" && p.from < to && p.to > from {
			return true
		}
	}
	return false
}
