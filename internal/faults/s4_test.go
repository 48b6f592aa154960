//go:build linux

package faults_test

const s4 = "S4 once"

// onceAKey: at most one effect a key, the same reply for everybody, and no attempt
// finishes that another one has taken over from.
func (e *evidence) onceAKey() {
	e.look(s4, e.count(`SELECT count(DISTINCT (kind, key)) FROM faults.effects`))
	e.refute(s4, `
		SELECT format('%s %s happened %s times: %s', kind, key, count(*), string_agg(op, ' '))
		FROM faults.effects GROUP BY kind, key HAVING count(*) > 1`)
	e.sameReply(e.h.of(do))
	e.sameReply(e.h.of(doTx))
	e.sameReply(e.h.of(begin, finish))
	e.notSuperseded()
}

// sameReply holds the replies of each key against each other.
func (e *evidence) sameReply(ops history) {
	for key, ops := range ops.good().byName() {
		var first *op
		for _, o := range ops {
			switch {
			case o.Kind == begin && !o.Replayed, e.lossy, e.forgotten(o): // no reply, or one that may be gone
			case first == nil:
				first = o
			case first.Digest != o.Digest:
				e.violated(s4, "%s %s: %s was answered %s, and %s %s", o.Kind, key, first.ID, first.Digest, o.ID, o.Digest)
			}
		}
	}
}

// notSuperseded: when an attempt has begun, those before it are over, and can't do
// anything under the key any more.
func (e *evidence) notSuperseded() {
	byID := map[string]*op{}
	for _, o := range e.h {
		byID[o.ID] = o
	}
	begun := e.h.of(begin).good().byName()
	for _, o := range e.h.of(finish, step).good() {
		mine := byID[o.Of]
		for _, other := range begun[o.Name] {
			if !other.Replayed && other != mine && mine.end() < other.Call && other.end() < o.Call && !e.forgotten(other) {
				e.violated(s4, "key %s: %s, %s of attempt %s, came after attempt %s had begun", o.Name, o.ID, o.Kind, mine.ID, other.ID)
			}
		}
	}
}
