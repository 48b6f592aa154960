//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// standby copies the server and starts the copy, not yet ready. On an error nothing is
// left.
func (l *local) standby(ctx context.Context) (backend, error) {
	tool := filepath.Join(l.bin, "pg_basebackup")
	if _, err := os.Stat(tool); err != nil {
		return nil, err
	}
	copied := &local{bin: l.bin, user: l.user, env: l.env, log: &tail{next: l.log.next}}
	if err := copied.follow(ctx, tool, l); err != nil {
		return nil, errors.Join(err, copied.stop())
	}
	return copied, nil
}

// follow makes the directories, fills them from the primary and serves them.
func (l *local) follow(ctx context.Context, tool string, primary *local) (err error) {
	if l.home, err = claimHome(false, l.user); err != nil {
		return err
	}
	if l.socket, err = claimSocket(l.home, l.user); err != nil {
		return err
	}
	out := &tail{}
	// The copy has the primary's settings; -R makes it a standby.
	backup, err := l.spawn(l.command(exec.CommandContext(ctx, tool, "-D", l.data(), "-h", primary.socketDir(),
		"-p", socketPort, "-U", superuser, "--checkpoint=fast", "--no-sync", "-R"), out))
	if err != nil {
		return err
	}
	<-backup.done
	if backup.err != nil {
		return fmt.Errorf("pg_basebackup: %w%s", backup.err, out.lastLines())
	}
	return l.serve()
}
