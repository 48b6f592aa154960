//go:build linux

package faults_test

const s3 = "S3 owners"

// ownersOnly: a grant takes what is free or lapsed, a renewal extends what is live, a
// release frees what is its own, and nothing else happens to a lease.
func (e *evidence) ownersOnly() {
	e.look(s3, e.count(`SELECT count(*) FROM faults.changes`))
	e.refute(s3, `SELECT format('%s: change %s is no grant, renewal or release: %s', name, n, what) FROM faults.changes WHERE what IN ('odd', 'delete')`)
	e.refute(s3, `
		SELECT format('%s: change %s does not follow the one before it', name, n)
		FROM (
			SELECT name, n, old_token, old_nonce, old_expires,
				lag(token) OVER w AS token, lag(nonce) OVER w AS nonce, lag(expires) OVER w AS expires
			FROM faults.changes WINDOW w AS (PARTITION BY name ORDER BY n)
		) AS c
		WHERE old_token <> token OR old_nonce IS DISTINCT FROM nonce AND token IS NOT NULL OR old_expires <> expires`)
	e.refute(s3, `
		SELECT format('%s: token %s was granted %s before the last lease was over', name, token, old_expires - acquired)
		FROM faults.changes WHERE what = 'grant' AND old_nonce IS NOT NULL AND old_expires > acquired`)
	e.refute(s3, `
		SELECT format('%s: token %s was renewed %s after its lease was over', name, token, renewed - old_expires)
		FROM faults.changes WHERE what = 'renew' AND old_expires <= renewed`)
	e.refute(s3, `
		SELECT format('%s: token %s got a lease of %s', name, token, expires - renewed)
		FROM faults.changes WHERE what IN ('grant', 'renew') AND expires - renewed <> $1::bigint * interval '1 microsecond'`, e.ttl.Microseconds())
	e.theirs()
}

// theirs: what holders were told that they did, they did; and nobody released what
// another held.
func (e *evidence) theirs() {
	changed := map[string]map[string]bool{"renew": {}, "release": {}}
	var what, nonce string
	e.query(`SELECT what, coalesce(nonce, old_nonce)::text FROM faults.changes WHERE what IN ('renew', 'release')`, nil,
		[]any{&what, &nonce}, func() { changed[what][nonce] = true })
	for _, o := range e.h.of(renew, release).good() {
		if !changed[string(o.Kind)][o.Nonce] && !e.lossy && !e.forgotten(o) {
			e.violated(s3, "%s: %s of token %d, %s, left no trace", o.Name, o.Kind, o.Token, o.ID)
		}
	}
	gaveUp := map[string]bool{} // nonces, and workers that closed
	for _, o := range e.h.of(release, closing) {
		gaveUp[o.Nonce], gaveUp[o.Worker] = true, gaveUp[o.Worker] || o.Kind == closing
	}
	for _, o := range e.h.of(acquire).good() {
		if changed["release"][o.Nonce] && !gaveUp[o.Nonce] && !gaveUp[o.Worker] {
			e.violated(s3, "%s: token %d of %s was released by somebody else", o.Name, o.Token, o.Worker)
		}
	}
}
