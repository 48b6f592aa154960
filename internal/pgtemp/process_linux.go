package pgtemp

import (
	"fmt"
	"os"
	"syscall"
)

// memoryDir is where Linux has files in memory, if anywhere.
const memoryDir = "/dev/shm"

// memoryRoom is the free space that makes memoryDir worth using: a data directory takes
// 40 MB, WAL some 300 MB more, and containers often have only 64 MB.
const memoryRoom = 1 << 30

// roomy says whether dir has enough free space for a server, unprivileged.
func roomy(dir string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) >= memoryRoom
}

// endWithParent asks for the immediate shutdown when the parent's thread ends; spawn
// keeps that thread.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// commandLine is that of a process, "" when there is none.
func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}
