package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// stepTimeout bounds each wait for another process; few take a second.
const stepTimeout = time.Minute

// event is a line of a process's log.
type event struct {
	Msg        string `json:"msg"`
	URL        string `json:"url"`
	Path       string `json:"path"`
	Status     int    `json:"status"`
	Replayed   bool   `json:"replayed"`
	RetryAfter int    `json:"retry_after"`
	Order      int64  `json:"order"`
	Charge     string `json:"charge"`
	Body       string `json:"body"`
	Err        string `json:"err"`
}

// child is this program, started again as a process of its own.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer    // it ends with it
	events chan event   // what it logged, closed at its end; nobody logs as much as fits in
	stderr bytes.Buffer // to be read after the end
}

// startChild starts "payments ARGS"; each line of its log goes to told as well.
func startChild(name string, env, args []string, told func(string, event)) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.Command(self, append(args, "--child")...), events: make(chan event, 4096)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	go c.listen(stdout, told)
	return c, nil
}

func (c *child) listen(stdout io.Reader, told func(string, event)) {
	defer close(c.events)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil { // it was killed in the middle of a line otherwise
			told(c.name, e)
			c.events <- e
		}
	}
	_ = c.cmd.Wait() // how it ended says ProcessState
}

// await returns the next event with one of these messages.
func (c *child) await(ctx context.Context, msgs ...string) (event, error) {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		select {
		case e, ok := <-c.events:
			if !ok {
				return e, fmt.Errorf("the %s ended before %q: %s", c.name, msgs, c.lastWords())
			}
			if slices.Contains(msgs, e.Msg) {
				return e, nil
			}
		case <-limited.Done():
			return event{}, fmt.Errorf("the %s: wait for %q: %w", c.name, msgs, context.Cause(limited))
		}
	}
}

// untilEnd waits for the end of a client, and returns what it came to.
func (c *child) untilEnd(ctx context.Context) (done []event, err error) {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		select {
		case e, ok := <-c.events:
			switch {
			case !ok && len(done) == 0:
				return nil, fmt.Errorf("the %s ended without an answer: %s", c.name, c.lastWords())
			case !ok:
				return done, nil
			case e.Msg == eventDone:
				done = append(done, e)
			}
		case <-limited.Done():
			return nil, fmt.Errorf("the %s: wait for its end: %w", c.name, context.Cause(limited))
		}
	}
}

// kill is SIGKILL, and returns when the process is gone. A nil child was never started.
func (c *child) kill() {
	if c == nil {
		return
	}
	_ = c.cmd.Process.Kill() // an error says that it has ended
	for range c.events {     // closed at its end
	}
}

// lastWords are for after the end.
func (c *child) lastWords() string {
	if text := strings.TrimSpace(c.stderr.String()); text != "" {
		return strings.TrimPrefix(text, "payments: ")
	}
	return c.cmd.ProcessState.String()
}
