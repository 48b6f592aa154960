package pglock_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// A connection to a server that is only a standby by now would refuse each heartbeat
// and each write for as long as it lives.
func TestStandby_ConnectionsToItAreReplaced(t *testing.T) {
	t.Parallel()
	f := pgtest.NewFailover(t)
	name, table := pgtest.Name(t), table(t, f.Primary)
	pool := f.Pool(t, 1)
	c := client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: time.Second})
	l := acquire(t, c, name, nil)
	renewedAgain(t, f.Primary, name)
	write := func() error {
		return l.InTx(t.Context(), func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "x") })
	}
	try := func() error {
		_, err := c.TryAcquire(t.Context(), pgtest.Name(t), nil)
		return err
	}

	f.Break(t)
	eventually(t, "a heartbeat that meets the standby", 30*time.Second, func() bool { return f.Refusals() > 0 })
	f.Switch(false)
	renewedAgain(t, f.Primary, name)

	for what, do := range map[string]func() error{"a fenced write": write, "an acquisition": try} {
		f.Switch(true)
		pool.Reset()
		if do() == nil {
			t.Errorf("%s: a standby let it pass", what)
		}
		f.Switch(false)
		eventually(t, what, 10*time.Second, func() bool { return do() == nil })
	}
	release(t, l)
}

// Rule R, and for those who wait: a failover is like a restart.
func TestStandby_WaitersWaitOn(t *testing.T) {
	t.Parallel()
	f := pgtest.NewFailover(t)
	name := pgtest.Name(t)
	l := acquire(t, client(t, f.Primary, pglock.Config{TTL: time.Minute}), name, nil)
	pool := f.Pool(t, 1)
	waiting := granted(t, client(t, pool, pglock.Config{PollInterval: 50 * time.Millisecond, DisableNotify: true}), name)
	eventually(t, "a waiter", 10*time.Second, func() bool { return pool.Stat().AcquireCount() >= 2 })
	f.Break(t)
	before := pool.Stat().NewConnsCount()
	eventually(t, "tries that meet the standby", 10*time.Second, func() bool { return pool.Stat().NewConnsCount() >= before+2 })
	f.Switch(false)
	release(t, l)
	release(t, within(t, 20*time.Second, waiting))
}
