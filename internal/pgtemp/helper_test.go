package pgtemp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"go.uber.org/goleak"
)

// envOrder turns the test binary into a helper: a process of its own, with an
// environment of its own, that starts a server and can be killed.
const envOrder = "PGTEMP_TEST_ORDER"

// order is what a helper does.
type order struct {
	Options   pgtemp.Options
	Timeout   time.Duration // for Start; 0: none
	NoFolders bool          // the usual folders hold nothing
}

// outcome is what a helper says, as one line, before it waits for the end of its input.
type outcome struct {
	Err      string
	NoServer bool // whether Err matches ErrNoServer
	Describe string
	URL      string
	Pid      int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(envOrder); text != "" {
		os.Exit(help(text))
	}
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// help carries an order out, in the helper.
func help(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	if o.NoFolders {
		*pgtemp.UsualFolders = nil
	}
	ctx := context.Background()
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	server, err := pgtemp.Start(ctx, &o.Options)
	report(server, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err == nil && server.Stop() != nil {
		return 1
	}
	return 0
}

// helper is a running helper process.
type helper struct {
	outcome
	cmd   *exec.Cmd
	stdin io.Closer
}

// startHelper gives o to a process with env on top of ours, and waits for what it says.
func startHelper(t *testing.T, o order, env ...string) *helper {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envOrder+"="+string(text)), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{cmd: cmd, stdin: stdin}
	t.Cleanup(func() { h.finish(t) })
	h.read(t, stdout)
	return h
}

// finish lets the helper stop its server, unless it is dead already.
func (h *helper) finish(t *testing.T) {
	t.Helper()
	if h.cmd.ProcessState != nil {
		return
	}
	_ = h.stdin.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("helper: %v", err)
	}
}

// kill ends the helper as the system does when memory runs out.
func (h *helper) kill(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait() // it says "signal: killed"
}

// read takes the line that report wrote.
func (h *helper) read(t *testing.T, stdout io.Reader) {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("helper said nothing: %v", err)
	}
	if err := json.Unmarshal([]byte(line), &h.outcome); err != nil {
		t.Fatal(err)
	}
}

// wantError is a helper's error, which has to hold all of parts.
func (h *helper) wantError(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(h.Err, part) {
			t.Errorf("got the error %q, want one with %q", h.Err, part)
		}
	}
}

// report writes what came of Start, in the helper.
func report(server *pgtemp.Server, err error) {
	var out outcome
	if err != nil {
		out.Err, out.NoServer = err.Error(), errors.Is(err, pgtemp.ErrNoServer)
	} else {
		out.Describe, out.URL, out.Pid = server.Describe(), server.URL(""), server.Pid()
	}
	line, _ := json.Marshal(out) // strings and numbers always encode
	fmt.Println(string(line))
}
