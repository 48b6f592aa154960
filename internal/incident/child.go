package incident

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// child is an importer that runs as a process of its own: this program, started
// again.
type child struct {
	program string // as which it reports
	who     string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	done    chan struct{} // closed when it has ended and was waited for
}

// childEvent is what a child reported, or that it is over.
type childEvent struct {
	child *child
	event
	over bool
	err  error
}

func (e childEvent) unexpected(want string) error {
	got := e.Kind
	if e.over {
		got = "it ended"
	}
	return fmt.Errorf("importer %s: %q came, where %q was promised", e.child.who, got, want)
}

// start starts an importer of the act; its events go to p.events.
func (p *performance) start(who string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "demo-importer",
		"--guard", p.guard, "--who", who, "--schema", string(p.scratch), "--ttl", p.ttl.String(),
		"--records", strconv.FormatInt(p.records, 10), "--batch", strconv.FormatInt(p.batch(), 10))
	cmd.Env = append(os.Environ(), urlVariable+"="+p.pool.Config().ConnString())
	cmd.SysProcAttr = childAttributes()
	return startChild(p.Name, who, cmd, p.events)
}

func startChild(program, who string, cmd *exec.Cmd, events chan<- childEvent) (*child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	c := &child{program: program, who: who, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The child is killed when the THREAD that started it ends, where the
		// system can do that; so this one stays as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			c.listen(stdout, events)
			events <- childEvent{child: c, over: true, err: c.result(cmd.Wait(), stderr.String())}
		}
	}()
	if err := <-started; err != nil {
		<-c.done
		return nil, fmt.Errorf("start importer %s: %w", who, err)
	}
	return c, nil
}

// listen hands the child's reports on until it closes its output.
func (c *child) listen(stdout io.Reader, events chan<- childEvent) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		e := childEvent{child: c}
		if err := json.Unmarshal(lines.Bytes(), &e.event); err != nil {
			e.err = fmt.Errorf("importer %s wrote %q: %w", c.who, lines.Text(), err)
		}
		events <- e
	}
}

// result is the reason that a child gave for its failure.
func (c *child) result(err error, stderr string) error {
	if err == nil {
		return nil
	}
	if text := strings.TrimSpace(stderr); text != "" {
		return fmt.Errorf("importer %s: %s", c.who, strings.TrimPrefix(text, c.program+": "))
	}
	return fmt.Errorf("importer %s: %w", c.who, err)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// proceed lets a child that waits after its first batch go on. One that is
// stopped finds the word when it wakes up.
func (c *child) proceed() error {
	_, err := io.WriteString(c.stdin, "go\n")
	return err
}

// stop returns when the child is really stopped.
func (c *child) stop(ctx context.Context) error {
	if err := signalStop(c.cmd.Process); err != nil {
		return fmt.Errorf("stop importer %s: %w", c.who, err)
	}
	return poll(ctx, stepTimeout, "the stop of importer "+c.who, func() (bool, error) { return isStopped(c.pid()) })
}

func (c *child) wake() error {
	if err := signalWake(c.cmd.Process); err != nil {
		return fmt.Errorf("wake importer %s: %w", c.who, err)
	}
	return nil
}

// end kills the child, also when it is stopped, and waits for it. One that has
// ended is left alone, and a nil one was never started.
func (c *child) end() error {
	if c == nil {
		return nil
	}
	_ = c.cmd.Process.Kill() // an error says that it has ended
	select {
	case <-c.done:
		return nil
	case <-time.After(stepTimeout):
		return fmt.Errorf("importer %s, process %d, does not end", c.who, c.pid())
	}
}
