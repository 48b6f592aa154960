//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	dirPrefix = "gatepost-pg-"
	ownerFile = "owner"

	// socketLimit is the longest path of a socket: 107 bytes on Linux, 103 on macOS.
	socketLimit = 103
)

// directory belongs to this process: while it lives it holds a lock on the owner file,
// so a directory whose lock is free was left by a dead process.
type directory struct {
	path  string
	owner *os.File
}

// claimHome makes the directory of a server, with data/ for user: in memory unless
// durable, else in the directory for temporary files.
func claimHome(durable bool, user *account) (*directory, error) {
	return claimIn(homes(durable), user, "data")
}

// claimSocket makes s/ for user: in home if a socket's path fits there, else in a
// directory with a shorter name.
func claimSocket(home *directory, user *account) (*directory, error) {
	if socketFits(home.path) {
		return home, user.mkdir(filepath.Join(home.path, "s"))
	}
	return claimSocketHome(user)
}

// claimSocketHome makes a directory for a socket alone, s/ for user.
func claimSocketHome(user *account) (*directory, error) {
	short := slices.DeleteFunc(bases(), func(base string) bool {
		return !socketFits(filepath.Join(base, dirPrefix+"0123456789"))
	})
	return claimIn(short, user, "s")
}

func socketFits(dir string) bool {
	return len(filepath.Join(dir, "s", ".s.PGSQL."+socketPort)) <= socketLimit
}

// bases are the directories that may hold ours; those that don't exist do no harm.
func bases() []string {
	all := []string{memoryDir, os.TempDir(), "/tmp"}
	return slices.DeleteFunc(all, func(base string) bool { return !filepath.IsAbs(base) })
}

// homes are the bases that suit a server's data.
func homes(durable bool) []string {
	return slices.DeleteFunc(bases(), func(base string) bool {
		return base == memoryDir && (durable || !roomy(base))
	})
}

// claimIn claims a directory in the first of bases that will do.
func claimIn(bases []string, user *account, sub string) (*directory, error) {
	var errs []error
	for _, base := range bases {
		dir, err := claim(base, user, sub)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no place for a temporary server: %w", errors.Join(errs...))
}

// claim makes a directory in base that holds sub, which belongs to user.
func claim(base string, user *account, sub string) (*directory, error) {
	if err := user.canReach(base); err != nil {
		return nil, err
	}
	dir, err := newDirectory(base)
	if err != nil {
		return nil, err
	}
	if err := user.mkdir(filepath.Join(dir.path, sub)); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return dir, nil
}

// newDirectory makes a directory and locks it. A sweeper can come between the making and
// the locking and remove it; then another one is made.
func newDirectory(base string) (*directory, error) {
	for {
		path, err := os.MkdirTemp(base, dirPrefix)
		if err != nil {
			return nil, err
		}
		owner, err := lockOwner(path, os.O_CREATE)
		if errors.Is(err, errOwned) {
			continue
		}
		if err == nil {
			err = os.Chmod(path, 0o711) // the server's user has to pass through
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
		return &directory{path: path, owner: owner}, nil
	}
}

// errOwned says that a directory belongs to somebody else, or to nobody any more.
var errOwned = errors.New("the directory belongs to another process")

// lockOwner takes the lock of a directory for as long as the file is open. The lock
// counts only if the locked file is still the one of that name.
func lockOwner(path string, flag int) (*os.File, error) {
	name := filepath.Join(path, ownerFile)
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW|flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errOwned
	}
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !isFile(f, name) {
		return nil, errors.Join(errOwned, f.Close())
	}
	return f, nil
}

// isFile says whether f is the file of that name.
func isFile(f *os.File, name string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(open, named)
}

// remove deletes the directory, then gives the lock up. Orphans of a killed initdb can
// still write for a moment, so it tries until nothing is left.
func (d *directory) remove() error {
	deadline := time.Now().Add(killTimeout)
	err := os.RemoveAll(d.path)
	for err != nil && time.Now().Before(deadline) {
		time.Sleep(probeFirst) //nolint:forbidigo // bounded, and there is no other event to wait for
		err = os.RemoveAll(d.path)
	}
	return errors.Join(err, d.owner.Close())
}

// sweep removes the directories that dead processes of this user left. What it can't
// remove it leaves to the next one.
func sweep() {
	for _, base := range bases() {
		paths, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
		for _, path := range paths {
			if isOurs(path) {
				sweepOne(path)
			}
		}
	}
}

// isOurs says whether path is a directory of this user, and no link to one.
func isOurs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// sweepOne removes one directory, and first the server in it, unless it is owned.
func sweepOne(path string) {
	owner, err := lockOwner(path, 0)
	if err != nil {
		return
	}
	dead := directory{path: path, owner: owner}
	killOrphan(filepath.Join(path, "data"))
	_ = dead.remove()
}
