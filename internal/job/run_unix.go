//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supported is nil here.
func Supported() error { return nil }

// Signals are those to catch and pass on. What this process was started to ignore, as by
// nohup, is not among them.
func Signals() []os.Signal {
	return append(EndingSignals(), heeded(unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT)...)
}

// EndingSignals are those of Signals that people end programs with.
func EndingSignals() []os.Signal {
	return heeded(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
}

// heeded leaves out what this process was started to ignore.
func heeded(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }

// Run runs a command, and returns when the command and all that it started are gone, or,
// of what can't be killed, when that ends. When the command itself ends, what it left
// behind is sent TERM, and KILL after the grace. When the lease is over before, all is
// sent TERM, and KILL after the grace or Lead before another may have the lease, whichever
// comes first.
//
// The command has this process's standard input, output and error, the first two of which
// are closed here when it has started, and whatever other files this process inherited.
// On a terminal it gets the terminal when it needs it, and Ctrl-Z and fg work.
//
// An error is a *StartError, or of the monitor; nothing runs any more then. The process
// must call Intercept, for it is started again as the monitor. One Run at a time, and the
// process should end after it.
func Run(c Command) (Outcome, error) {
	adopt() // what a killed monitor leaves
	l, err := startMonitor(c.Env, c.Title)
	if err != nil {
		return Outcome{}, err
	}
	defer l.close()
	r := &run{Command: c, link: l}
	if r.pid, err = l.begin(r.deadlines(order{Start: &startOrder{Path: c.Path, Args: c.Args, Grace: c.Grace, Title: c.Title}})); err != nil {
		return Outcome{}, err
	}
	r.terminal = openTerminal(r.pid)
	defer r.terminal.close()
	os.Stdin.Close() // the other end of a pipe there has to learn when the command closes it
	os.Stdout.Close()
	return r.untilGone()
}

// run is one that has started its command.
type run struct {
	Command
	*link
	pid      int
	terminal *terminal
	over     <-chan time.Time // when the command must be gone; nil while the lease is held
	killed   bool             // by this process, without the monitor
}

// deadlines adds to an order what the lease says now.
func (r *run) deadlines(o order) order {
	o.Term = momentOf(r.Lease.Deadline())
	o.Kill = o.Term.add(r.Grace)
	return o
}

func (r *run) untilGone() (Outcome, error) {
	done := r.Lease.Done()
	for {
		select {
		case <-r.Renewed:
			r.tell(r.deadlines(order{}))
		case <-done:
			done = nil
			r.lose()
		case <-r.over:
			// The monitor is late. It may have been stopped.
			r.killed = unix.Kill(-r.pid, unix.SIGKILL) == nil
		case sig := <-r.Signals:
			r.pass(sig)
		case said, ok := <-r.reports:
			if !ok {
				return r.alone()
			}
			if said.Event == eventGone {
				r.terminal.takeBack(said.Code > 128)
				return r.verdict(said.Outcome), nil
			}
			r.hear(said)
		}
	}
}

// lateness is the least time for the monitor's word to come, after a long stop of this
// process: when all is over there, the command's number may be another's.
const lateness = 50 * time.Millisecond

// lose has the command ended.
func (r *run) lose() {
	r.tell(order{Lost: true})
	left := min(time.Until(r.Lease.Deadline()), 0) + r.Grace + r.Lead/4
	r.over = time.After(max(left, lateness))
}

// verdict adds what the monitor can't know: a lease that was taken away was lost earlier
// than it is known here.
func (r *run) verdict(o Outcome) Outcome {
	o.Killed = o.Killed || r.killed
	select {
	case <-r.Lease.Done():
		o.Lost = o.Lost || time.Until(r.Lease.Deadline()) > 0
	default:
	}
	return o
}

// pass hands a signal to the command.
func (r *run) pass(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if number == unix.SIGCONT {
		r.terminal.resume()
	}
	r.tell(order{Signal: number})
}

// hear does what a report asks for.
func (r *run) hear(said report) {
	switch said.Event {
	case eventStopped:
		if r.terminal.wanted(said.Stop) {
			r.tell(order{Signal: unix.SIGCONT})
			return
		}
		// It is continued with this process, by the SIGCONT that is passed on.
		r.terminal.stopWith(said.Stop)
	case eventStuck:
		if r.Stuck != nil {
			r.Stuck(said.Stuck)
		}
	default: // the others come once, and elsewhere
	}
}

// alone ends the command without a monitor, of which nothing but KILL is asked: its
// deadlines may have passed.
func (r *run) alone() (Outcome, error) {
	g := group{pgid: r.pid, leader: r.pid, root: os.Getpid()}
	for started := time.Now(); ; {
		g.signal(unix.SIGKILL)
		reap(r.pid)
		alive := g.alive()
		if len(alive) == 0 {
			break
		}
		if r.Stuck != nil && time.Since(started) > stuckAfter {
			r.Stuck(alive)
			r.Stuck = nil
		}
		<-time.After(10 * time.Millisecond)
	}
	r.terminal.takeBack(true)
	return Outcome{Lost: r.Lease.Err() != nil, Killed: true}, ErrMonitorGone
}
