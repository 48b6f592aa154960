package pgtemp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	removeTimeout = 30 * time.Second // for docker rm, which may wait for a busy engine
	clientTimeout = 5 * time.Second  // for docker run, after its container is gone
)

// entry is PID 1's script: the image's own entrypoint, and beside it a watch of the
// standard input. That ends with the process that started the container, however it
// ended, and then so does the server, at once; --rm removes the rest. A signal to PID 1
// counts only when it has a handler, which postgres does and the entrypoint does not:
// hence the loop.
const entry = `exec 3<&0
(cat <&3 >/dev/null; while kill -QUIT 1; do sleep 1; done) >/dev/null 2>&1 &
exec docker-entrypoint.sh postgres "$@" </dev/null`

// container is a server in a container, driven through Docker's command line.
type container struct {
	image, name, password string

	log    *tail
	client *process // docker run, attached
	hangUp func() error

	mu   sync.Mutex
	addr string // host:port, "" until Docker published it
}

// startContainer runs image, not yet ready: Docker may have to pull it first. On an error
// nothing is left.
func startContainer(image string, opts *Options) (backend, error) {
	c := &container{
		image:    image,
		name:     "gatepost-pg-" + strings.ToLower(rand.Text()),
		password: rand.Text(),
		log:      &tail{next: opts.Logs},
	}
	cmd := exec.Command("docker", c.runArgs(opts.settings())...)
	cmd.Env = append(os.Environ(), "POSTGRES_PASSWORD="+c.password) // not in the command line, which others can read
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.WaitDelay = removeTimeout
	detach(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.hangUp = stdin.Close
	if c.client, err = spawn(cmd); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *container) runArgs(settings map[string]string) []string {
	args := []string{
		"run", "--rm", "--interactive", "--name", c.name, "--label", "gatepost.pgtemp",
		"--publish", "127.0.0.1::5432", "--env", "POSTGRES_PASSWORD",
		"--entrypoint", "sh", c.image, "-c", entry, "sh",
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

func (c *container) url(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password),
		Host: c.addr, Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (c *container) source() string                           { return "image " + c.image }
func (c *container) pid() int                                 { return 0 }
func (c *container) exited() <-chan struct{}                  { return c.client.done }
func (c *container) lastLines() string                        { return c.log.lastLines() }
func (c *container) restart(Shutdown) error                   { return errors.ErrUnsupported }
func (c *container) standby(context.Context) (backend, error) { return nil, errors.ErrUnsupported }

// probe learns the published port. A connection proves the rest: while the image makes
// its data directory it listens on no port.
func (c *container) probe(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.addr != "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "docker", "port", c.name, "5432/tcp").Output()
	if err != nil {
		return errors.New("the container is starting")
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if _, _, err := net.SplitHostPort(first); err != nil {
		return fmt.Errorf("docker port: %w", err)
	}
	c.addr = first
	return nil
}

// stop hangs up and removes the container by name, whichever works first. A client that
// is still there then is pulling the image: it is killed, and what it may have created at
// the last moment is removed.
func (c *container) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout) //nolint:forbidigo // Stop has no ctx: it must finish
	defer cancel()
	_ = c.hangUp() // only fails when the client is gone
	err := c.remove(ctx)
	select {
	case <-c.client.done:
		return err
	case <-time.After(clientTimeout):
	}
	_ = c.client.cmd.Process.Kill() // only fails when it is gone
	<-c.client.done
	return c.remove(ctx)
}

// remove makes sure that no container of this name is left.
func (c *container) remove(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "docker", "rm", "--force", "--volumes", c.name).CombinedOutput()
	if err != nil && !gone(string(out)) {
		return fmt.Errorf("docker rm %s: %w: %s", c.name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// gone says whether docker rm found that there is nothing to do.
func gone(output string) bool {
	return strings.Contains(output, "No such container") || strings.Contains(output, "already in progress")
}
