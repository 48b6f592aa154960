package job

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath is this program, also when its file was replaced meanwhile.
const selfPath = "/proc/self/exe"

// adopt makes this process the parent of all descendants that lose theirs, so that they
// stay its descendants.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has a child killed when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// process is what /proc says of one.
type process struct {
	pid, parent, group int
	over               bool // it is a zombie
}

// strays are the descendants of the root that are in another group.
func (g group) strays() (pids []int) {
	family, _ := g.family()
	for _, p := range family {
		if p.group != g.pgid && !p.over {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// alive says which processes of the command have not ended; without a /proc, only
// whether the group has any, as the negative group.
func (g *group) alive() (pids []int) {
	family, ok := g.family()
	if !ok && g.pgid != 0 && unix.Kill(-g.pgid, 0) == nil {
		return []int{-g.pgid}
	}
	grouped := false
	for _, p := range family {
		grouped = grouped || p.group == g.pgid
		if !p.over {
			pids = append(pids, p.pid)
		}
	}
	if !grouped {
		g.pgid = 0
	}
	return pids
}

// family is the group and the descendants of the root, without the root. ok is false when
// the system doesn't show processes.
func (g group) family() (family []process, ok bool) {
	all := processes()
	member := map[int]bool{g.root: true}
	for grown := true; grown; { // few rounds: a parent is mostly listed before its child
		grown = false
		for _, p := range all {
			if !member[p.pid] && (member[p.parent] || (p.group == g.pgid && g.pgid != 0)) {
				member[p.pid], grown = true, true
				family = append(family, p)
			}
		}
	}
	return family, len(all) > 0
}

// processes lists all that /proc shows.
func processes() (all []process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if p, ok := parseStat(stat); err == nil && ok {
			p.pid = pid
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads a line of /proc/PID/stat: proc_pid_stat(5). The name, which is in
// brackets, can hold anything.
func parseStat(stat []byte) (p process, ok bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 18 {
		return process{}, false
	}
	p.parent, _ = strconv.Atoi(string(fields[1]))
	p.group, _ = strconv.Atoi(string(fields[2]))
	threads, _ := strconv.Atoi(string(fields[17]))
	// A first thread that ended before the others looks like a zombie.
	p.over = (fields[0][0] == 'Z' || fields[0][0] == 'X') && threads <= 1
	return p, true
}
