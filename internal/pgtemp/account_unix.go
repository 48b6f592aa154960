//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	name       string
	credential *syscall.Credential // nil: the user of this process
}

// serverAccount is the user of this process, or when that is root, whom PostgreSQL
// refuses, postgres or nobody.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return &account{name: strconv.Itoa(os.Geteuid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return newAccount(u)
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

func newAccount(u *user.User) (*account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return &account{
		name:       u.Username,
		credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}, nil
}

// attributes start a process as this user, in a group of its own: Ctrl-C at a terminal
// is for the program, which then stops its server.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Credential: a.credential}
	endWithParent(attr)
	return attr
}

// mkdir makes a directory that only this user can open.
func (a *account) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// canReach says whether this user may pass through dir and every parent.
func (a *account) canReach(dir string) error {
	if a.credential == nil {
		return nil // what we can't reach fails by itself
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !a.canEnter(info) {
			return fmt.Errorf("%s is closed to the user %s", dir, a.name)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

// canEnter reads the permission bits that apply to this user.
func (a *account) canEnter(info os.FileInfo) bool {
	bit := os.FileMode(0o001)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case stat.Uid == a.credential.Uid:
			bit = 0o100
		case stat.Gid == a.credential.Gid:
			bit = 0o010
		}
	}
	return info.Mode().Perm()&bit != 0
}
