//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startCommand starts the command in a process group of its own, with this process's
// files and environment. The calling thread has to live as long as the command.
func startCommand(path string, args []string) (pid int, err error) {
	attr := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2}, // those above stay as they were inherited
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	dieWithParent(attr.Sys)
	pid, _, err = syscall.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a first line that says of what
		pid, _, err = syscall.StartProcess("/bin/sh", append([]string{"sh", path}, args[1:]...), attr)
	}
	return pid, err
}

// reap collects what changed in this process's children, among them orphans that it
// adopted, and returns the changes of one of them in their order.
func reap(pid int) (changes []unix.WaitStatus) {
	for {
		var status unix.WaitStatus
		found, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || found <= 0:
			return changes
		case found == pid:
			changes = append(changes, status)
		}
	}
}

// exitCode is what a shell would make of it.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return SignalCode(status.Signal())
	}
	return status.ExitStatus()
}

// SignalCode is the exit code of a program that a signal ends: 128 and its number.
func SignalCode(sig os.Signal) int {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return 1
	}
	return 128 + int(number)
}
