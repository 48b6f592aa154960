//go:build unix

package pglock_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// signal stops a puppet, or lets it go on.
func (p *puppet) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// writeAs writes one row under a lease.
func writeAs(t *testing.T, l *pglock.Lease, table, note string) {
	t.Helper()
	if err := l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table, note) }); err != nil {
		t.Fatal(err)
	}
}

// notes are the rows of a table in the order of their writing.
func notes(t *testing.T, pool *pgxpool.Pool, table string) string {
	t.Helper()
	return value[string](t, pool, `SELECT coalesce(string_agg(note, ', ' ORDER BY ctid), '') FROM `+table)
}

// The story of the package: a holder is stopped for longer than its TTL, as by a
// garbage collection or a suspended machine, and wakes up as if nothing had been.
func TestStoppedHolder_IsTakenOverAndFencedOff(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	p := startPuppet(t, pool, role{TTL: 2 * short})
	p.must(t, "try")
	p.must(t, "write")
	waiting := granted(t, client(t, pool, pglock.Config{}), p.Name)
	registered(t, pool, p.Name, 1)

	p.signal(t, syscall.SIGSTOP)
	stopped, last := clock(t, pool), row(t, pool, p.Name)
	next := within(t, 20*time.Second, waiting)
	grantedBy(t, pool, p.Name, stopped, 2*short+time.Second+slack)
	if r := row(t, pool, p.Name); r.Acquired.Before(last.Expires) || r.Token <= last.Token {
		t.Errorf("taken over as %+v from %+v", r, last)
	}
	writeAs(t, next, p.Table, "next")

	p.signal(t, syscall.SIGCONT)
	if a := p.ask(t, "write in a transaction of its own"); !a.is("fenced") || !a.is("superseded") {
		t.Errorf("its fence says: %+v", a)
	}
	if a := p.ask(t, "write without a look at the lease"); !a.is("fenced") || !a.is("superseded") {
		t.Errorf("its fenced transaction, as the database sees it: %+v", a)
	}
	// Its own timer knows that it expired, and a heartbeat whose it is now: either is first.
	for _, command := range []string{"done", "renew", "release"} {
		if a := p.ask(t, command); !a.is("expired") && !a.is("superseded") {
			t.Errorf("%s: %+v, want it to be expired, or superseded", command, a)
		}
	}
	if a := p.ask(t, "write"); !a.is("fenced") {
		t.Errorf("write: %+v, want it to be fenced", a)
	}
	if got := notes(t, pool, p.Table); got != "write, next" {
		t.Errorf("written: %s", got)
	}
	if r := row(t, pool, p.Name); !r.Held || r.Token != next.Token() || next.Err() != nil {
		t.Errorf("the next holder's lease is %+v, %v", r, next.Err())
	}
}

// Stopped inside a fenced transaction, it keeps the takeover out until the server
// has ended that, and no longer.
func TestStoppedHolder_InAFencedTransactionIsCutOff(t *testing.T) {
	t.Parallel()
	const limit = 2500 * time.Millisecond
	pool := pgtest.Pool(t)
	version := value[int](t, pool, `SELECT current_setting('server_version_num')::int`)
	for what, statement := range map[string]string{
		"idle": "", "in a statement": fmt.Sprintf("SELECT pg_sleep(%f)", 0.8*limit.Seconds()),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := startPuppet(t, pool, role{TTL: short, FenceTimeout: limit})
			p.must(t, "try")
			waiting := granted(t, client(t, pool, pglock.Config{}), p.Name)
			registered(t, pool, p.Name, 1)
			began := clock(t, pool)
			p.must(t, "begin")
			most := short + limit + slack
			if statement != "" {
				p.tell(t, statement)
				eventually(t, "the statement", 10*time.Second, func() bool {
					return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity
						WHERE application_name = $1 AND query = $2 AND state = 'active'`, p.Table, statement) == 1
				})
				if version < 170000 { // without transaction_timeout: see Config.FenceTimeout
					most += limit
				}
			}
			p.signal(t, syscall.SIGSTOP)
			stopped := clock(t, pool)
			next := within(t, 20*time.Second, waiting)
			grantedBy(t, pool, p.Name, stopped, most)
			if took := row(t, pool, p.Name).Acquired.Sub(began); took < limit {
				t.Errorf("taken over %s after an open fence, whose limit is %s", took, limit)
			}
			writeAs(t, next, p.Table, "next")

			p.signal(t, syscall.SIGCONT)
			if statement != "" {
				p.answer(t)
			}
			if a := p.ask(t, "commit"); a.Err == "" || a.is("unknown") {
				t.Errorf("its commit: %+v, want it to know that it was rolled back", a)
			}
			if a := p.ask(t, "write"); !a.is("fenced") {
				t.Errorf("its next write: %+v", a)
			}
			if got := notes(t, pool, p.Table); got != "next" {
				t.Errorf("written: %s", got)
			}
		})
	}
}
