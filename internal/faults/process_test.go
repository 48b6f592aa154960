//go:build linux

package faults_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
)

// process is a worker as the conductor sees it, over all its lives.
type process struct {
	role
	proxy *faultproxy.Proxy
	turn  sync.Mutex // of a fault that ends a life and begins the next

	mu     sync.Mutex
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	ended  chan struct{}
	err    error // how it ended; after ended
	doomed bool  // it is meant to be killed
}

// live starts the worker's next life.
func (p *process) live(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		select {
		case <-p.ended:
		default:
			t.Errorf("worker %s lives still", p.name())
		}
	}
	p.Life++
	text, err := json.Marshal(p.role)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envWorker+"="+string(text), "GOTRACEBACK=all")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Error(err)
		return
	}
	ended, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when this thread ends
		defer close(ended)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err = err; err != nil && !p.doomed {
			t.Errorf("worker %s ended by itself: %v", p.name(), err)
		}
	}()
	if err := <-started; err != nil {
		t.Error(err)
	}
	p.cmd, p.ended, p.doomed = cmd, ended, false
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

// order tells the worker to make a fault by itself.
func (p *process) order(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.stdin, what+"\n")
}

// kill ends it as the system does when memory runs out.
func (p *process) kill() {
	p.mu.Lock()
	p.doomed = true
	ended := p.ended
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	if ended != nil {
		<-ended
	}
}

// retire asks it to end, and says whether it did in time.
func (p *process) retire() bool {
	p.order("stop")
	select {
	case <-p.ended:
		return true
	case <-time.After(2 * endWithin):
		p.kill()
		return false
	}
}
