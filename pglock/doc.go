// Package pglock gives leases, fencing tokens and fenced transactions on the
// PostgreSQL that a service already has.
//
// # What is not promised
//
// A lease alone is not mutual exclusion. A holder that pauses (garbage
// collection, a suspended machine, a partition) outlives its lease, another
// acquires it, and the first wakes up and goes on. Done tells a running process
// in time; it can't tell a stopped one. A longer TTL makes that rarer and
// renewal makes it rarer still; neither makes it impossible.
//
// What protects is the fenced transaction: Lease.InTx checks the fencing token in
// the same transaction as the write, and a takeover waits for its commit. It
// protects what is written in that transaction, in that database, and nothing
// else. An effect elsewhere, a mail or a payment, is protected only if its
// receiver checks the token or an idempotency key.
//
// Clocks: only the database's decides. A server whose clock jumps can end a
// lease early or late; fenced writes stay safe. After a failover to an
// asynchronous standby the newest grants may be lost: tokens still rise, and the
// nonce refuses the stale holder. Leases are never read from a replica. A crash may
// forget a release that no grant of the name came after: see Lease.Release.
//
// Often no lock is needed at all: a unique key, a conditional update or an
// idempotency key makes running twice harmless. See package idem.
//
// A table can demand the fence by itself, also of programs that never heard of leases:
// see GuardTable. It stops mistakes, not a table's owner.
//
// # Use
//
// Bring the schema into the database with package migrations or with "gatepost
// migrate up". Make one Client a process and close it.
//
//	client, err := pglock.New(pool, pglock.Config{})
//	...
//	err = client.Do(ctx, "reports/daily", nil, func(ctx context.Context, l *pglock.Lease) error {
//		rows, err := compute(ctx)            // stop when ctx ends: the lease is lost
//		if err != nil {
//			return err
//		}
//		return l.InTx(ctx, func(tx pgx.Tx) error { // refused if it was lost
//			return save(ctx, tx, rows)
//		})
//	})
//
// # The life of a lease
//
//	          acquire                    renew
//	free ───────────────▶ held ◀──────────────────┐
//	  ▲                    │ ├────────────────────┘
//	  │ release            │ │ not renewed in time
//	  └────────────────────┘ ▼
//	                       lapsed ── acquire by anyone ──▶ held, higher token
//	                         │
//	                         └ its fenced transactions are refused;
//	                           one that began before holds the takeover off
//
// A waiter registers in gatepost.waiters and is notified by the release, one
// waiter at a time. A leader that hands over reserves the free name for its
// candidate for 5 s; everybody else is told that it is held.
//
// A holder trusts its lease until the moment it SENT the last successful request,
// plus TTL, minus SafetyMargin, on its own monotonic clock: always before the
// database lets another in. Between that moment and the expiry nobody works. That
// clock stands still while a machine is suspended: after waking up, a holder may
// trust a lease that is gone, until the database or a fence tells it.
package pglock
