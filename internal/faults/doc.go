// Package faults is the fault suite: processes that hold leases, fence writes and do
// idempotent work while a conductor kills, stops, stalls and cuts them, their
// connections and their server. What they did is recorded and checked afterwards, as
// etcd is with Jepsen and Porcupine, on one machine. It is made of tests only.
//
//	go test ./internal/faults                                      # a few seconds
//	go test ./internal/faults -v -faults.for=30s -faults.seed=7    # longer
//	go test ./internal/faults -v -run TestSoak -faults.soak=8h
//
// A run is: a server, some workers (processes, made by executing the test binary
// again), and a schedule of faults that follows from the seed. The same seed gives the
// same schedule and the same choices of each worker; how they interleave is up to the
// machine. Its clocks are real, so a seed that failed may have to be run a few times.
//
// # What is recorded
//
// Each worker writes what it calls and what comes back, with CLOCK_MONOTONIC, which the
// processes of a machine share. A line is written before the call and another after it,
// so that a killed process leaves an operation without an end: its outcome is unknown.
//
// The database keeps the other half, in tables that the workers' transactions append
// to: a trigger logs every change of a lease with the snapshot in which it was made,
// and every fenced write is a row with the id of its transaction. A write that was
// committed under a token must be visible in the snapshot of the next grant, since a
// takeover waits for the fence. That is the order of commits, told by PostgreSQL
// itself: no clock and no sequence can say it exactly.
//
// # What is checked
//
//	S1  tokens of a name rise strictly and are unique
//	S2  no fenced commit with a token after a grant above it
//	S3  grants, renewals and releases touch only what is theirs
//	S4  at most one effect per key, and replays are identical to the byte
//	S5  Lost is signalled before the lease expires on the server
//	S6  no transaction is left aborted without an error, no acknowledged one is missing
//	G   a guarded table takes no write without a fence (in every other run)
//	L   a takeover comes in time; a process that is asked to end does
//	P   porcupine finds an order of all operations that a lease with a fence allows
//
// The last is a model of one register a name, which is written by reading and adding
// one, with nothing but the fence to protect it.
package faults
