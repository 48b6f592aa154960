//go:build linux

package faults_test

const s1 = "S1 tokens"

// tokensRise: tokens of a name rise strictly and are unique, in the database and in what
// the holders were told.
func (e *evidence) tokensRise() {
	e.look(s1, e.count(`SELECT count(*) FROM faults.changes WHERE what = 'grant'`))
	e.refute(s1, `
		SELECT format('%s: token %s follows %s', name, token, previous)
		FROM (SELECT name, token, lag(token) OVER (PARTITION BY name ORDER BY n) AS previous FROM faults.changes WHERE what = 'grant') AS g
		WHERE token <= previous`)
	for name, ops := range e.h.of(acquire).good().byName() {
		for _, later := range ops {
			for _, earlier := range ops {
				// With a clock that is behind the tokens, one that was lost comes again.
				again := e.withStandby && e.forgotten(earlier)
				if earlier.end() < later.Call && earlier.Token >= later.Token && !again {
					e.violated(s1, "%s: %s got token %d after %s got %d", name, later.ID, later.Token, earlier.ID, earlier.Token)
				}
			}
		}
	}
	e.grantsLast()
}

// grantsLast: a grant that was acknowledged is in the database, whatever
// synchronous_commit is.
func (e *evidence) grantsLast() {
	granted := map[string]bool{}
	var nonce string
	e.query(`SELECT nonce::text FROM faults.changes WHERE what = 'grant'`, nil, []any{&nonce}, func() { granted[nonce] = true })
	for _, o := range e.h.of(acquire).good() {
		if !granted[o.Nonce] && !e.forgotten(o) {
			e.violated(s1, "%s: the grant of token %d to %s is gone", o.Name, o.Token, o.ID)
		}
	}
}
