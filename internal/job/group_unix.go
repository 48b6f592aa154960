//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import "golang.org/x/sys/unix"

// group is a command's process group and, where the system tells, whatever left it.
type group struct {
	// pgid is 0 when the group is over, so that nobody else's is meant whose number is
	// the same later.
	pgid int
	// leader is the command itself.
	leader int
	// root is the process whose descendants all belong to the command.
	root int
}

// signal sends a signal to the whole group at once, and then to each process that left
// it. Who can't be signalled is left out.
func (g group) signal(sig unix.Signal) {
	if g.pgid != 0 { // which would be this process's own
		_ = unix.Kill(-g.pgid, sig)
	}
	for _, pid := range g.strays() {
		_ = unix.Kill(pid, sig)
	}
}

// pass hands on a signal as a terminal would, to the group; one that means what the
// command makes of it is for the command alone: it ends a process that knows nothing of it.
func (g group) pass(sig unix.Signal) {
	switch {
	case g.pgid == 0:
	case sig == unix.SIGUSR1 || sig == unix.SIGUSR2:
		_ = unix.Kill(g.leader, sig)
	default:
		_ = unix.Kill(-g.pgid, sig)
	}
}

// end asks all to end; who is stopped has to be continued to hear it.
func (g group) end() {
	g.signal(unix.SIGTERM)
	g.signal(unix.SIGCONT)
}
