//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling one, which has one process group in its foreground: only
// that may read from it, and it gets Ctrl-C and Ctrl-Z. At first that is the group of the
// run, with the shell script or the pipeline that the run is part of; then Ctrl-C reaches
// all of them, and the run passes it on. The command's group gets the foreground when it
// asks for it, by being stopped; or at once, when the run is a shell's job of its own. A
// nil terminal is none.
type terminal struct {
	file *os.File
	// own and child are process groups.
	own, child int
	// given says that the command has, or will have again after fg, the foreground.
	given bool
	modes *term.State // when it was given
}

// openTerminal is nil when there is none.
func openTerminal(child int) *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, own: unix.Getpgrp(), child: child}
	// From the background it is taken back; nothing is started after this, to inherit it.
	signal.Ignore(unix.SIGTTOU)
	if t.own == os.Getpid() && isTerminal(0) && isTerminal(1) {
		t.give()
	}
	return t
}

func (t *terminal) close() {
	if t != nil {
		t.file.Close()
	}
}

// foreground is the group that has it.
func (t *terminal) foreground() int {
	pgid, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

func (t *terminal) set(pgid int) bool {
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, pgid) == nil
}

// give gives the command the foreground if this process has it.
func (t *terminal) give() bool {
	if t.foreground() != t.own {
		return false
	}
	t.modes, _ = term.GetState(int(t.file.Fd()))
	t.given = t.set(t.child)
	return t.given
}

// wanted says whether the command was stopped because it wanted the terminal, and has it
// now.
func (t *terminal) wanted(sig unix.Signal) bool {
	if t == nil || (sig != unix.SIGTTIN && sig != unix.SIGTTOU) {
		return false
	}
	return t.foreground() == t.child || t.give()
}

// takeBack takes the foreground from a command that had it and is gone or stopped, with
// the modes of before if it could not set them back itself.
func (t *terminal) takeBack(modes bool) {
	if t == nil || !t.given || t.foreground() == t.own {
		return
	}
	if t.set(t.own) && modes && t.modes != nil {
		_ = term.Restore(int(t.file.Fd()), t.modes)
	}
}

// stopWith stops this process as its command was stopped, so that the shell learns of
// it, and returns when it goes on. A command that was stopped for another reason than a
// terminal's is left to whoever did that.
func (t *terminal) stopWith(sig unix.Signal) {
	had := t != nil && t.given
	if sig == unix.SIGSTOP && !had {
		return
	}
	t.takeBack(true)
	whom := os.Getpid()
	if t != nil && t.foreground() == t.own {
		whom = 0 // the whole job
	}
	_ = unix.Kill(whom, unix.SIGSTOP)
}

// resume gives the command the foreground again, if it had it and fg gave it to us.
func (t *terminal) resume() {
	if t != nil && t.given {
		t.give()
	}
}

func isTerminal(fd int) bool { return term.IsTerminal(fd) }
