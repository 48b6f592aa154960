//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// monitorName is the command of the monitor, which nobody types.
const monitorName = "__monitor"

// Intercept turns a process that was started as a monitor into one, and ends with it;
// else it returns. It has to be called first of all in main, before signals are caught.
func Intercept() {
	if len(os.Args) < 4 || os.Args[1] != monitorName {
		return
	}
	in, err := strconv.Atoi(os.Args[2])
	out, outErr := strconv.Atoi(os.Args[3])
	if err != nil || outErr != nil || in < 3 || out < 3 {
		fmt.Fprintf(os.Stderr, "%s is for gatepost itself: use gatepost run\n", monitorName)
		os.Exit(2)
	}
	// Neither the command nor what it starts may have them: the end of this process, and
	// of the run, is told by the end of the pipes.
	unix.CloseOnExec(in)
	unix.CloseOnExec(out)
	runtime.LockOSThread() // the command dies with the thread that starts it
	adopt()
	m := newMonitor(os.NewFile(uintptr(in), "orders"), os.NewFile(uintptr(out), "reports"))
	m.run()
	os.Exit(0)
}

// monitor ends a command in time.
type monitor struct {
	orders  <-chan order
	reports *json.Encoder
	changed chan os.Signal // SIGCHLD
	timer   *time.Timer

	startOrder
	group      group
	term, kill moment // until when the lease is good for TERM and KILL
	started    bool
	exited     bool // the command itself
	orphaned   bool // the run is gone
	outcome    Outcome
	ending     ending
}

func newMonitor(orders io.Reader, reports io.Writer) *monitor {
	m := &monitor{reports: json.NewEncoder(reports), changed: make(chan os.Signal, 1), timer: time.NewTimer(time.Hour)}
	signal.Notify(m.changed, unix.SIGCHLD)
	m.swallow()
	m.orders = readOrders(orders)
	return m
}

// swallow makes this process deaf for what is meant for the command or the run: it ends
// with them. It has handlers, which are not inherited as an ignored signal is; what was
// ignored before stays so, for the command.
func (m *monitor) swallow() {
	deaf := make(chan os.Signal, 1) // never read: what doesn't fit in is dropped
	for _, sig := range []os.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(deaf, sig)
		}
	}
}

// readOrders hands on what the run says, and closes the channel when the run is gone.
func readOrders(r io.Reader) <-chan order {
	orders := make(chan order)
	go func() { // ends with the pipe, or with the process
		defer close(orders)
		for decoder := json.NewDecoder(r); ; {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// run returns when the command is gone, or could not be started.
func (m *monitor) run() {
	for {
		m.timer.Reset(m.pause())
		select {
		case o, ok := <-m.orders:
			if !ok {
				m.orders, m.orphaned = nil, true // a closed channel would be ready for ever
			} else if err := m.obey(o); err != nil {
				m.failed(err)
				return
			}
		case <-m.changed:
			m.collect()
		case <-m.timer.C:
		}
		if !m.started && m.orphaned || m.over() {
			return
		}
	}
}

// obey does what the run said.
func (m *monitor) obey(o order) (err error) {
	if !m.ending.final() && o.Term != 0 {
		m.term, m.kill = o.Term, o.Kill
	}
	switch {
	case o.Start != nil:
		return m.start(*o.Start)
	case o.Signal != 0 && !m.exited:
		m.group.pass(o.Signal)
	case o.Lost:
		m.end(lost)
	}
	return nil
}

func (m *monitor) start(o startOrder) error {
	m.startOrder = o
	pid, err := startCommand(o.Path, o.Args)
	if err != nil {
		return err
	}
	m.started = true
	m.group = group{pgid: pid, leader: pid, root: os.Getpid()}
	// The other end of a pipe there has to learn when the command closes it.
	os.Stdin.Close()
	os.Stdout.Close()
	m.tell(report{Event: eventStarted, PID: pid})
	return nil
}

func (m *monitor) failed(err error) {
	r := report{Event: eventFailed, Errno: syscall.EIO}
	_ = errors.As(err, &r.Errno)
	m.tell(r)
}

// tell is in vain when the run is gone, which the end of the orders says.
func (m *monitor) tell(r report) { _ = m.reports.Encode(r) }

// collect learns what became of the command.
func (m *monitor) collect() {
	for _, status := range reap(m.group.leader) {
		if status.Stopped() {
			m.tell(report{Event: eventStopped, Stop: status.StopSignal()})
			continue
		}
		m.exited = true
		m.outcome.Code = exitCode(status)
	}
}
