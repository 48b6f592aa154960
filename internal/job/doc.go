// Package job runs a command that must not outlive a lease.
//
// What is not promised: a process that hands work to another daemon (docker, systemd-run,
// at, a database) or to another host takes that work out of reach. One that runs as
// another user, as sudo makes it, can't be signalled unless this program is root, and one
// that hangs in the kernel dies when it comes out: the lease is then kept, or said to be
// lost, and the process is named. Outside Linux a process that makes a session or a group of
// its own escapes too, and if both the run and its monitor are killed, or stopped, with
// SIGKILL or SIGSTOP at the same time, nobody is left to end the command.
//
// Three processes stand in a line: the run, which keeps the lease; its monitor, which is
// this program again, and whose only work is to end the command in time; and the command,
// in a process group of its own.
//
//	run ── monitor ── command ── whatever it starts
//
// The run tells the monitor each new deadline, as a moment of a clock that both share. The
// monitor sends TERM at the deadline and KILL a grace later, which is still before the
// database lets another take the lease, and needs neither the run nor the database for
// that: so the run may hang, be stopped, or be killed, when the monitor reads the end of
// its pipe. When the monitor is killed, Linux kills the command with it, and the run kills
// what that left. On Linux the monitor adopts what loses its parent, and so finds
// processes that left the command's group and session.
package job
