//go:build linux

package faults_test

const s5 = "S5 lost in time"

// lostInTime: a loss is signalled before the lease expires on the server. A process that
// did not run can't signal; it must do so when it runs again, so what counts is how long
// it was awake when it should have known: from the margin before the expiry on.
func (e *evidence) lostInTime() {
	if e.stepped() {
		return // the server's expiry has no place on our clock
	}
	expiry := e.expiries()
	asleep, granted := map[string]history{}, map[string]int64{}
	for _, o := range e.h.of(hiccup) {
		asleep[o.Worker] = append(asleep[o.Worker], o)
	}
	for _, o := range e.h.of(acquire) {
		granted[o.ID] = o.Return
	}
	margin := int64(e.ttl / 10)
	for _, o := range e.h.of(lost) {
		e.look(s5, 1)
		over, known := expiry[o.Nonce]
		from := max(over-margin, granted[o.Of]) // an answer can come when the lease is over
		awake := o.Call - from - overlap(asleep[o.Worker], from, o.Call)
		if known && o.Deadline > over && !e.renewalsLost(o) {
			e.violated(s5, "%s: %s trusted token %d for %d ms longer than the server", o.Name, o.Worker, o.Token, (o.Deadline-over)/1e6)
		}
		if known && o.Call > over && awake > 2*margin && !e.renewalsLost(o) {
			e.violated(s5, "%s: %s was told of the loss of token %d %d ms after its expiry, and was awake for %d ms",
				o.Name, o.Worker, o.Token, (o.Call-over)/1e6, awake/1e6)
		}
	}
	e.toldAtAll(expiry)
}

// renewalsLost says whether a failover may have made the expiry an earlier one than the
// holder knew of.
func (e *evidence) renewalsLost(o *op) bool {
	return e.failover != nil && o.Call > e.failover.cut && o.Call < e.failover.promoted+int64(2*e.ttl)
}

// toldAtAll: whoever was taken over from, and lived on, was told.
func (e *evidence) toldAtAll(expiry map[string]int64) {
	told, last := map[string]bool{}, map[string]int64{}
	for _, o := range e.h {
		if o.Kind == lost || o.Kind == release {
			told[o.Nonce] = true
		}
		if o.Kind != hiccup {
			last[o.Worker] = o.Call
		}
	}
	for _, o := range e.h.of(acquire).good() {
		over, known := expiry[o.Nonce]
		if known && !told[o.Nonce] && last[o.Worker] > over+int64(e.ttl) {
			e.violated(s5, "%s: %s was never told of the loss of token %d", o.Name, o.Worker, o.Token)
		}
	}
}

// expiries are when each acquisition expired on the server, on our clock, of those that
// were not released.
func (e *evidence) expiries() map[string]int64 {
	expiry, offset := map[string]int64{}, wallOffset()
	var nonce string
	var us int64
	e.query(`
		SELECT DISTINCT ON (c.nonce) c.nonce::text, (extract(epoch FROM c.expires) * 1000000)::bigint
		FROM faults.changes AS c
		WHERE c.what IN ('grant', 'renew')
			AND NOT EXISTS (SELECT FROM faults.changes AS r WHERE r.what = 'release' AND r.old_nonce = c.nonce)
		ORDER BY c.nonce, c.n DESC`, nil, []any{&nonce, &us}, func() { expiry[nonce] = us*1000 - offset })
	return expiry
}

// overlap is how much of the time between from and to some intervals cover.
func overlap(of history, from, to int64) (covered int64) {
	for _, o := range of {
		covered += max(0, min(o.Return, to)-max(o.Call, from))
	}
	return covered
}
