//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt has nothing to ask for here: the init process adopts orphans, and reaps them.
func adopt() {}

// dieWithParent has nothing to ask for here.
func dieWithParent(*syscall.SysProcAttr) {}

// selfPath is left to os.Executable here.
const selfPath = ""

// strays are not to be found here.
func (g group) strays() []int { return nil }

// alive says which processes of the group have not ended: only whether there are any, as
// the negative group.
func (g *group) alive() []int {
	if g.pgid == 0 || unix.Kill(-g.pgid, 0) == unix.ESRCH {
		g.pgid = 0
		return nil
	}
	return []int{-g.pgid}
}
