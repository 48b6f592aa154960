//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// localSupported says whether this package can run binaries of this machine.
const localSupported = true

// socketPort names the socket's file; nothing listens on a port.
const socketPort = "5432"

// How long a step of the shutdown may take before the next, harder one.
const (
	quitTimeout = 10 * time.Second // PostgreSQL kills its own after 5 s
	killTimeout = 5 * time.Second
	// restartTimeout is for a machine that has much else to do.
	restartTimeout = 30 * time.Second
)

// local is a server that runs from this machine's binaries.
type local struct {
	bin    string
	home   *directory // all of it, in the usual case
	socket *directory // home again, or a directory with a shorter name
	user   *account
	env    []string // on top of the usual one
	log    *tail
	server atomic.Pointer[process] // replaced by a restart
}

// startLocal makes a data directory and starts a server on it, not yet ready. On an
// error nothing is left.
func startLocal(ctx context.Context, bin string, opts *Options) (backend, error) {
	bin, err := filepath.Abs(bin) // the server runs in another directory
	if err != nil {
		return nil, err
	}
	user, err := serverAccount()
	if err != nil {
		return nil, err
	}
	sweep()
	l := &local{bin: bin, user: user, env: opts.Env, log: &tail{next: opts.Logs}}
	if err := l.start(ctx, opts); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

func (l *local) start(ctx context.Context, opts *Options) (err error) {
	if l.home, err = claimHome(opts.Durable, l.user); err != nil {
		return err
	}
	if l.socket, err = claimSocket(l.home, l.user); err != nil {
		return err
	}
	if err := l.initdb(ctx); err != nil {
		return err
	}
	if err := l.configure(opts); err != nil {
		return err
	}
	return l.serve()
}

// serve starts the postmaster on the data directory.
func (l *local) serve() error {
	cmd := l.command(exec.Command(filepath.Join(l.bin, "postgres"), "-D", l.data(), "-k", l.socketDir()), l.log)
	server, err := l.spawn(cmd)
	if err == nil {
		l.server.Store(server)
	}
	return err
}

func (l *local) data() string      { return filepath.Join(l.home.path, "data") }
func (l *local) socketDir() string { return filepath.Join(l.socket.path, "s") }

// initdb makes the data directory. Its output is only shown when it fails.
func (l *local) initdb(ctx context.Context) error {
	out := &tail{}
	cmd := l.command(exec.CommandContext(ctx, filepath.Join(l.bin, "initdb"),
		"--pgdata", l.data(), "--username", superuser, "--auth-local", "trust", "--auth-host", "reject",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"), out)
	// initdb ends after its current step, which takes a fraction of a second. A harder
	// way would leave the shared memory of the postgres below it.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = quitTimeout
	p, err := l.spawn(cmd)
	if err != nil {
		return err
	}
	<-p.done
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whoever did not end in time
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("initdb from %s: %w%s", l.bin, p.err, out.lastLines())
	}
	return nil
}

// command gives cmd the server's user, environment and output.
func (l *local) command(cmd *exec.Cmd, out io.Writer) *exec.Cmd {
	cmd.Dir = l.home.path // the caller's own may be closed to the server's user
	cmd.Env = append(serverEnv(), l.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = l.user.attributes()
	cmd.WaitDelay = killTimeout
	return cmd
}

// spawn is the function of that name, with a hint for the usual reason of a refusal.
func (l *local) spawn(cmd *exec.Cmd) (*process, error) {
	p, err := spawn(cmd)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w: is %s open to the user %s?", err, l.bin, l.user.name)
	}
	return p, err
}

// serverEnv is the caller's environment without what would configure PostgreSQL behind
// our back. LC_ALL has to be set: on macOS the postmaster refuses to start without it.
func serverEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(env, "LC_ALL=C")
}

// configure appends the settings to postgresql.conf, where ALTER SYSTEM overrides them.
func (l *local) configure(opts *Options) error {
	f, err := os.OpenFile(filepath.Join(l.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	settings := opts.settings()
	// Trust is for whoever can open the socket, so that is only the server's user.
	settings["listen_addresses"] = ""
	settings["unix_socket_permissions"] = "0700"
	settings["port"] = socketPort
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, err := fmt.Fprintf(f, "%s = '%s'\n", name, quote.Replace(settings[name])); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

func (l *local) url(database string) string {
	query := url.Values{"host": {l.socketDir()}, "port": {socketPort}}
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20"), // libpq takes a plus literally
	}
	return u.String()
}

func (l *local) source() string          { return l.bin }
func (l *local) pid() int                { return l.server.Load().cmd.Process.Pid }
func (l *local) exited() <-chan struct{} { return l.server.Load().done }
func (l *local) lastLines() string       { return l.log.lastLines() }

// probe reads the postmaster's own word, so that no connection is refused and logged.
func (l *local) probe(context.Context) error {
	if !isReady(l.data()) {
		return errors.New("the server is starting")
	}
	return nil
}

// restart ends the postmaster as asked and starts another one.
func (l *local) restart(how Shutdown) error {
	sig := syscall.SIGINT
	if how == Immediate {
		sig = syscall.SIGQUIT
	}
	if !l.end(sig, restartTimeout) {
		return fmt.Errorf("process %d does not end", l.pid())
	}
	return l.serve()
}

// stop ends what start began, however far it came.
func (l *local) stop() error {
	if l.server.Load() != nil {
		if err := l.kill(); err != nil {
			return err
		}
	}
	var errs []error
	if l.socket != nil && l.socket != l.home {
		errs = append(errs, l.socket.remove())
	}
	if l.home != nil {
		errs = append(errs, l.home.remove())
	}
	return errors.Join(errs...)
}

// kill asks for an immediate shutdown, and does it itself when none comes.
func (l *local) kill() error {
	if l.end(syscall.SIGQUIT, quitTimeout) || l.end(syscall.SIGKILL, killTimeout) {
		return nil
	}
	return fmt.Errorf("process %d does not end", l.pid())
}

// end sends a signal, waits, and says whether the postmaster has ended.
func (l *local) end(sig syscall.Signal, timeout time.Duration) bool {
	server := l.server.Load()
	select {
	case <-server.done:
		return true
	default:
	}
	_ = syscall.Kill(server.cmd.Process.Pid, sig) // only fails when it is gone
	select {
	case <-server.done:
		return true
	case <-time.After(timeout):
		return false
	}
}

// detach keeps a terminal's signals from cmd, see account.attributes.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
