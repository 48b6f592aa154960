//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"os/exec"
	"strconv"
	"syscall"
)

// memoryDir is empty: these systems have no directory in memory by default.
const memoryDir = ""

func roomy(string) bool { return false }

// endWithParent has nothing to ask for here: the next Start ends an orphan.
func endWithParent(*syscall.SysProcAttr) {}

// commandLine is that of a process, "" when there is none.
func commandLine(pid int) string {
	text, _ := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return string(text)
}
