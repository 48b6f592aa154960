//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// localPooler is a PgBouncer's process. It runs as the user of the temporary servers,
// whose sockets are closed to others; PgBouncer refuses root, too.
type localPooler struct {
	home    *directory
	user    *account
	log     *tail
	process *process
}

// launchPooler starts a PgBouncer, not yet ready, and returns its socket's directory. On an
// error nothing is left.
func launchPooler(bin string, at *pgx.ConnConfig, opts *PoolerOptions) (poolerProcess, string, error) {
	user, err := serverAccount()
	if err != nil {
		return nil, "", err
	}
	sweep()
	home, err := claimSocketHome(user)
	if err != nil {
		return nil, "", err
	}
	l := &localPooler{home: home, user: user, log: &tail{}}
	dir := filepath.Join(home.path, "s")
	if err := l.start(bin, dir, at, opts); err != nil {
		return nil, "", errors.Join(err, home.remove())
	}
	return l, dir, nil
}

func (l *localPooler) start(bin, dir string, at *pgx.ConnConfig, opts *PoolerOptions) (err error) {
	users, config := filepath.Join(dir, "users.txt"), filepath.Join(dir, "pgbouncer.ini")
	if err := l.write(users, opts.userList(at)); err != nil {
		return err
	}
	if err := l.write(config, opts.ini(at, dir, users)); err != nil {
		return err
	}
	cmd := exec.Command(bin, config)
	cmd.Dir, cmd.Env = dir, serverEnv()
	cmd.Stdout, cmd.Stderr = l.log, l.log
	cmd.SysProcAttr = l.user.attributes()
	cmd.WaitDelay = killTimeout
	l.process, err = spawn(cmd)
	return err
}

// write makes a file that only the pooler's user can read: it may hold a password.
func (l *localPooler) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if l.user.credential == nil {
		return nil
	}
	return os.Chown(path, int(l.user.credential.Uid), int(l.user.credential.Gid))
}

func (l *localPooler) exited() <-chan struct{} { return l.process.done }
func (l *localPooler) lastLines() string       { return l.log.lastLines() }

// stop kills it: it has nothing to write out. One that has ended by itself is an error.
func (l *localPooler) stop() error {
	select {
	case <-l.process.done:
		return errors.Join(fmt.Errorf("it ended before (%w):%s", l.process.err, l.lastLines()), l.home.remove())
	default:
	}
	_ = l.process.cmd.Process.Kill() // only fails when it is gone
	select {
	case <-l.process.done:
		return l.home.remove()
	case <-time.After(killTimeout):
		return fmt.Errorf("process %d does not end", l.process.cmd.Process.Pid)
	}
}
