//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reason is why a command is ended. A later one weighs more.
type reason int

const (
	running  reason = iota
	leftover        // it has ended, and left processes behind
	orphaned        // the run is gone
	lost            // the lease is
)

// ending is how far the end of a command is.
type ending struct {
	reason reason
	kill   moment // when KILL is due, if the lease doesn't end before
	since  moment // when the first KILL was sent; 0 before
	stuck  bool   // that was told
	// slow is how long it took to reach all with TERM: on a busy machine, to find those that
	// left the group takes its time. KILL begins so much earlier before the lease ends.
	slow time.Duration
}

// final says that the lease counts as over: later deadlines mean nothing.
func (e ending) final() bool { return e.reason > leftover }

// How long after KILL a process counts as stuck, and when a monitor without a run gives
// it up: it has been killed, and dies when the kernel lets it.
const (
	stuckAfter  = 2 * time.Second
	giveUpAfter = 10 * time.Second
)

// end asks the command to end.
func (m *monitor) end(why reason) {
	if m.ending.reason == running {
		begun := now()
		m.group.end()
		m.ending.kill = now().add(m.Grace)
		m.ending.slow = min(begun.until(now()), m.Grace/2)
	}
	m.ending.reason = max(m.ending.reason, why)
}

// over does what is due, and says whether all is done.
func (m *monitor) over() bool {
	if !m.started {
		return false
	}
	at := now()
	var alive []int
	if m.exited || m.ending.since != 0 {
		alive = m.group.alive()
		if m.exited && len(alive) == 0 {
			return m.gone()
		}
	}
	switch {
	case at >= m.term:
		m.end(lost)
	case m.orphaned:
		m.end(orphaned)
	case m.exited && m.ending.reason == running:
		m.outcome.Left = len(alive)
		m.end(leftover)
	}
	if m.ending.reason != running && at >= m.killAt() {
		return m.murder(at, alive)
	}
	return false
}

// killAt is when KILL is due.
func (m *monitor) killAt() moment { return min(m.ending.kill, m.kill.add(-m.ending.slow)) }

// gone tells the outcome.
func (m *monitor) gone() bool {
	m.outcome.Lost = m.ending.reason == lost
	m.tell(report{Event: eventGone, Outcome: m.outcome})
	if m.orphaned {
		m.lastWord("gatepost run of %s is gone, and so its command was ended; the lease lapses by itself\n", m.Title)
	}
	return true
}

// murder sends KILL, again and again: a process may be forked while others are killed.
func (m *monitor) murder(at moment, alive []int) (givenUp bool) {
	m.group.signal(unix.SIGKILL)
	m.outcome.Killed = true
	if m.ending.since == 0 {
		m.ending.since = at
	}
	dying := m.ending.since.until(at)
	if dying >= stuckAfter && !m.ending.stuck && len(alive) > 0 {
		m.ending.stuck = true
		m.tell(report{Event: eventStuck, Stuck: alive})
	}
	if m.orphaned && dying >= giveUpAfter {
		m.lastWord("gatepost run of %s is gone, and its command was killed, but doesn't end: processes %v\n", m.Title, alive)
		return true
	}
	return false
}

// lastWord is for the log, when there is no run to write it. Standard error may be a
// pipe that nobody reads.
func (m *monitor) lastWord(format string, args ...any) {
	done := make(chan struct{})
	go func() { // may outlive this, by the little that is left of the process
		defer close(done)
		fmt.Fprintf(os.Stderr, "gatepost: "+format, args...)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// pause is how long there is nothing to do, unless something happens.
func (m *monitor) pause() time.Duration {
	at := now()
	switch {
	case !m.started:
		return time.Hour
	case m.ending.reason == running:
		return shortly(at.until(m.term))
	case m.ending.since == 0 && !m.exited:
		return shortly(at.until(m.killAt()))
	case m.ending.since == 0 || m.ending.stuck:
		// Outside Linux nothing tells that a group has no process left.
		return 50 * time.Millisecond
	default:
		return 5 * time.Millisecond
	}
}

// shortly is d or less, since the clock may go on while timers stand still, in a machine
// that is suspended; and never nothing: the processor is the command's.
func shortly(d time.Duration) time.Duration { return min(max(d, time.Millisecond), time.Second) }
