//go:build linux

package faults_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
)

const guarded = "G  guards"

// intruder is a program that never heard of leases, and writes to what a guard protects.
type intruder struct {
	refused int
	passed  []string
}

// intrusions are what it tries in turn. Guards are for programs that forgot the fence, so
// it forges none.
var intrusions = []string{
	`INSERT INTO faults.writes (op, kind, name, token, nonce, counter) VALUES ('intruder', 'write', 'alpha', 1, gen_random_uuid(), 1000000)`,
	`UPDATE faults.writes SET counter = counter + 1000000`,
	`DELETE FROM faults.writes`,
	`TRUNCATE faults.writes`,
}

// guard puts a guard on the table of the fenced writes, by the lease that each row names.
func (c *conductor) guard() {
	c.t.Helper()
	c.cluster.exec(c.t, `SELECT gatepost.guard_table('faults.writes', lease_column => 'name')`)
}

// intrude tries to write until ctx ends. What a fault got in the way of is no try.
func (c *conductor) intrude(ctx context.Context) (i *intruder, stop func()) {
	i = &intruder{}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			what := intrusions[n%len(intrusions)]
			err := c.cluster.try(ctx, what)
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pglock.CodeFenced {
				i.refused++
			} else if err == nil {
				i.passed = append(i.passed, what)
			}
			pause(ctx, 20*time.Millisecond)
		}
	})
	return i, func() { cancel(); done.Wait() }
}

// guardsHold: whoever presents no fence writes nothing.
func (e *evidence) guardsHold() {
	if e.intruder == nil {
		return
	}
	e.look(guarded, e.intruder.refused+len(e.intruder.passed))
	for _, what := range e.intruder.passed {
		e.violated(guarded, "without a fence: %s", what)
	}
}
