//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package incident

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// canStop says whether this system can stop a process.
const canStop = true

// childAttributes put a child in a process group of its own: Ctrl-C is for the
// demo, which then ends the child. When the demo is killed, Linux kills the
// child; elsewhere a stopped child's group is orphaned then, and POSIX has such a
// group hung up and woken.
func childAttributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	killWithParent(attr)
	return attr
}

func signalStop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func signalWake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// isStopped asks the system for the state of a process: T is stopped.
func isStopped(pid int) (bool, error) {
	if runtime.GOOS != "linux" {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T")), err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The state comes after the name, which is in brackets and can hold any.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(state, []byte("T")), err
}
