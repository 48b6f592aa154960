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

// end asks all to end; who is stopped has to be continued to hear it.
func (g group) end() {
	g.signal(unix.SIGTERM)
	g.signal(unix.SIGCONT)
}
