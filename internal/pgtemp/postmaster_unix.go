//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Lines of postmaster.pid, counted from 0.
const (
	linePid    = 0
	lineStatus = 7
)

// postmasterLine is one line of the file that a running server keeps in its data
// directory, "" when there is none.
func postmasterLine(data string, line int) string {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return ""
	}
	lines := strings.Split(string(text), "\n")
	if line >= len(lines) {
		return ""
	}
	return strings.TrimSpace(lines[line])
}

// isReady is the postmaster's own word on whether it takes connections.
func isReady(data string) bool { return postmasterLine(data, lineStatus) == "ready" }

// killOrphan ends the server whose owner died, where the system has not done so, and
// returns when it is gone or can't be ended.
func killOrphan(data string) {
	pid, err := strconv.Atoi(postmasterLine(data, linePid))
	if err != nil || pid <= 1 {
		return
	}
	start := time.Now()
	// The number may have passed to another process: only the command line tells.
	for strings.Contains(commandLine(pid), data) && time.Since(start) < quitTimeout+killTimeout {
		sig := syscall.SIGQUIT
		if time.Since(start) > quitTimeout {
			sig = syscall.SIGKILL
		}
		_ = syscall.Kill(pid, sig)
		time.Sleep(probeFirst) //nolint:forbidigo // bounded; another process's child can only be polled
	}
}
