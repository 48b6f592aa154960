//go:build linux

package faults_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5/pgxpool"
)

// failover is a standby, and when what was lost with the primary.
type failover struct {
	standby *pgtemp.Server
	// What was done after cut, and before promoted, may be gone.
	cut, promoted int64
}

// ahead makes the tokens of some names come from a clock that was ahead once. A token
// is then one more than the last, so that a promoted standby gives a lost one again, to
// another holder: only the nonce tells them apart.
func (c *cluster) ahead(t *testing.T, names []string) {
	t.Helper()
	c.exec(t, `
		INSERT INTO gatepost.leases (name, token, acquired_at, renewed_at, expires_at, transitions)
		SELECT n, 7000000000000000, now(), now(), now(), 1 FROM unnest($1::text[]) AS n`, names)
	c.exec(t, `TRUNCATE faults.changes`) // nobody was granted these
}

// follow gives the cluster a standby; it skips the test where there can be none.
func (c *cluster) follow(t *testing.T) *failover {
	t.Helper()
	standby, err := c.server().Standby(t.Context())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("no standby can be made: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &failover{standby: standby}
}

// promote makes the standby lag, loses the primary with what the standby hasn't got, and
// sends everybody to the standby.
func (c *conductor) promote(f fault) {
	standby := connect(c.t, c.failover.standby)
	c.failover.cut = now()
	c.catchUp(standby)
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if _, err := standby.Exec(c.t.Context(), sql); err != nil {
			c.t.Error(err)
		}
	}
	c.wait(f)
	if err := c.cluster.server().Stop(); err != nil {
		c.t.Error(err)
	}
	var promoted bool
	if err := standby.QueryRow(c.t.Context(), `SELECT pg_promote()`).Scan(&promoted); err != nil || !promoted {
		c.t.Errorf("the standby is not promoted: %v", err)
	}
	c.cluster.primary.Store(&node{server: c.failover.standby, admin: standby})
	for _, p := range c.processes {
		p.proxy.Redirect(c.t, c.cluster.server().URL(""))
		p.proxy.Break()
	}
	c.failover.promoted = now()
	c.t.Logf("promoted; the primary was ahead for %s", time.Duration(c.failover.promoted-c.failover.cut).Round(time.Millisecond))
}

// catchUp waits until the standby has what was done until now, also what was acknowledged
// before it was on the primary's disk: it is sent no sooner.
func (c *conductor) catchUp(standby *pgxpool.Pool) {
	var target string
	err := c.cluster.admin().QueryRow(c.t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&target)
	for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); pause(c.t.Context(), 5*time.Millisecond) {
		var there bool
		if err = standby.QueryRow(c.t.Context(), `SELECT pg_last_wal_receive_lsn() >= $1::text::pg_lsn`, target).Scan(&there); there {
			return
		}
	}
	c.t.Errorf("the standby doesn't follow: %v", err)
}

// forgotten says whether a failover may have lost what an operation did.
func (c *conductor) forgotten(o *op) bool {
	return c.failover != nil && o.end() > c.failover.cut && o.Call < c.failover.promoted
}

// A promotion comes once, in the middle of a run.
var promotion = species{name: "promotion", server: true, inject: (*conductor).promote}

// A standby that lags is promoted: tokens are never taken for one another, and what was
// lost, was lost whole.
func TestFaults_LaggingStandby(t *testing.T) {
	t.Parallel()
	needsTime(t)
	s := newScenario(*seed)
	s.withStandby = true
	s.once = &fault{Kind: promotion.name, At: s.length * 2 / 5, For: s.length / 5, Worker: -1}
	s.species = append(without("crash", "prepared"), promotion)
	s.conduct(t)
}
