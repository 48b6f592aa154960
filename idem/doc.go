// Package idem makes running twice harmless, which is better than trying not to
// run twice: who comes second gets what the first one got.
//
// # What is not promised
//
// Exactly once holds for what is written in this database, in the transaction of the
// key. A mail that was sent or a card that was charged on the way is another system's:
// Do runs its function again when the transaction met another one, and in lease mode
// an effect may have happened although nobody lived to say so. Only the peer can tell,
// by a key of its own (Attempt.ExternalKey is one to send) or when it is asked (BeginRecover).
//
// A key protects only what it covers. One made of what changes between two runs (a
// time, a random id, a sequence) makes every run a new one: the key must come from
// whoever tries again.
//
// A record is kept for Config.Retention. A retry that comes later runs again.
//
// A fingerprint tells two requests apart that share a key. It doesn't find two
// requests that mean the same and have different keys; a unique key on the data does.
//
// An asynchronous failover can lose a committed record together with its effect: the
// retry then runs, rightly. It can't lose one of the two, since they are one commit.
//
// # The lowest rung that is enough
//
// Each of these holds where the ones above it do not, and costs more:
//
//  1. A unique key on the data: InsertOnce, CopyOnce. One statement, nothing of
//     Gatepost's. An invoice number, a file and its line.
//  2. A conditional update: CompareAndSet, or an UPDATE whose WHERE has the state that
//     it leaves. One statement. A document that was edited, an order that is shipped.
//  3. An idempotency key: Do, Inbox. One row and two round trips more. A request whose
//     reply must be the same the second time; a message whose effect has no key.
//  4. A partition: each key is worked on by one process, by a hash of the key. No two
//     meet, until the number of processes changes; so on top of one of the above.
//  5. A lease (package pglock): running twice becomes rare, not impossible. For work
//     that is a waste twice, and no harm.
//  6. A lease whose fencing token is checked with the write (pglock, Lease.InTx): a
//     holder that lost it can't write. For one writer over many transactions.
//
// A lock is not a substitute for 1 to 3. A holder that was paused outlives its lock,
// and a request that was sent twice is sent twice, lock or not.
//
// # Two modes of an idempotency key
//
// Transaction mode (Do, DoTx, DoValue, Inbox) is the default: claim, effect and reply
// are one commit. A crash at any moment leaves all of it or nothing, the key is free
// at once, and there is no timer. It is for effects in this database.
//
// Lease mode (Begin, BeginRecover) is for effects outside: the claim is committed
// first and held by a lease, the effect follows, and Finish stores the reply. A crash
// leaves the claim until the lease has lapsed; then another attempt takes it over, is
// told so (Attempt.Previous), and fences off the first. Attempt.Step keeps what is
// done already.
//
// Records, released keys and claims that nobody came back to go after their retention:
// Store.GC collects them, Store.Backlog tells how far behind it is, and Store.Forget
// removes one by hand. Whether they are collected changes nothing for a call.
//
// # What a call meets
//
// What is there for the key, and what comes of it for the same fingerprint:
//
//	nothing, or what was there rolled back    claim and run
//	a call that has not committed             ErrInProgress, or Options.Wait and look again
//	a claim with a live lease                 ErrInProgress with RetryAfter
//	a claim whose lease has lapsed            taken over: a new attempt (Begin); ErrInProgress (Do)
//	released                                  claim and run
//	done                                      the stored reply, byte for byte, Replayed set
//	done, the reply was too large (tombstone) ErrReplayUnavailable; never runs
//	done or tombstone, expired                claim and run, whether GC was there or not
//	a fingerprint of another version          ErrMismatch
//	the database can't be reached             ErrUnavailable; never runs unprotected
//
// With another fingerprint it is ErrMismatch in each of these, as soon as the row can
// be seen, except where there is nothing or it has expired. Finish of an attempt that
// was taken over is ErrFenced, and what it wrote is rolled back.
//
// What the function returned, and what comes of that:
//
//	a reply           writes kept, reply stored
//	Final(reply)      writes undone, reply stored
//	FinalKeep(reply)  writes kept, reply stored
//	any other error   writes undone, nothing stored, the key is free
//	a panic           the same, and it goes on
//
// A stored reply means that its transaction committed. An error that passes (a
// serialization failure, a lost connection, a ctx that ended) is never made final.
//
// # What goes wrong elsewhere
//
// Most of these are shown by pitfalls_test.go.
//
// SELECT, and INSERT if there is nothing, lets two callers both find nothing.
//
// MERGE looks and then inserts, in one statement: the second of two concurrent ones
// fails with 23505, and without a unique index inserts twice. Only ON CONFLICT waits
// for the other one and goes on.
//
// INSERT ... ON CONFLICT DO NOTHING RETURNING returns no row for one that is there.
// UNION ALL SELECT behind it, to read that row, finds nothing when the INSERT had to
// wait: both have the snapshot from before the wait. It takes a new statement.
//
// ON CONFLICT DO UPDATE SET id = excluded.id, a no-op to have RETURNING give the row,
// writes a version of the row and WAL at each call, makes callers queue for its lock,
// and fires the triggers: 5 to 21 times the cost of reading it. It also fails with
// 21000 where one statement has a key twice.
//
// A row that another transaction has inserted and not committed is invisible and in
// the way. What ON CONFLICT skipped may be rolled back a moment later: "0 rows" doesn't
// mean that the row is there.
//
// A partial unique index WHERE expires_at > now() would let keys expire by themselves,
// and PostgreSQL refuses it (42P17): a predicate must be immutable. Expiry is for the
// statement to decide, by clock_timestamp(): now() stands still in a transaction.
//
// A unique index lets any number of NULLs in, until NULLS NOT DISTINCT (PostgreSQL 15).
//
// An INSERT that was skipped has used up a value of its sequence. Gaps are not lost
// rows, and max(id) is not a count.
//
// Reading a row, deciding in the program and writing it back loses what was written in
// between. The version belongs in the WHERE.
package idem
