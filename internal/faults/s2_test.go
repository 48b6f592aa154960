//go:build linux

package faults_test

const s2 = "S2 fences"

// fencesHold: no fenced commit with a token after a grant above it, nor by an
// acquisition that is not the token's, nor by a transaction that began when the lease
// had expired.
func (e *evidence) fencesHold() {
	e.look(s2, e.count(`SELECT count(*) FROM faults.writes`))
	// The next grant waits for the fences of the last holder, so it must see what they
	// protect.
	e.refute(s2, `
		SELECT format('%s: %s was committed with token %s after %s was granted', w.name, w.op, w.token, g.token)
		FROM faults.writes AS w
		CROSS JOIN LATERAL (
			SELECT c.token, c.snap FROM faults.changes AS c
			WHERE c.name = w.name AND c.what = 'grant' AND c.token > w.token ORDER BY c.token LIMIT 1
		) AS g
		WHERE NOT pg_visible_in_snapshot(w.xid, g.snap)`)
	e.refute(s2, `
		SELECT format('%s: %s wrote with token %s, which another acquisition had', w.name, w.op, w.token)
		FROM faults.writes AS w
		WHERE NOT EXISTS (
			SELECT FROM faults.changes AS c
			WHERE c.name = w.name AND c.what = 'grant' AND c.token = w.token AND c.nonce = w.nonce
		)`)
	if e.stepped() {
		return // a clock that was stepped can't tell what was before what
	}
	// Not that of a release, whose clock is read before it commits: what came in between
	// came before it. Writes behind a release are for the model.
	e.refute(s2, `
		SELECT format('%s: %s began %s after the lease of token %s expired', w.name, w.op, w.began - l.expires, w.token)
		FROM faults.writes AS w
		CROSS JOIN LATERAL (
			SELECT c.expires FROM faults.changes AS c
			WHERE c.name = w.name AND c.token = w.token AND c.what IN ('grant', 'renew') ORDER BY c.n DESC LIMIT 1
		) AS l
		WHERE w.began >= l.expires`)
}
