//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"syscall"
	"time"
)

// order is what the run tells its monitor, a line of JSON each.
type order struct {
	// Start is the first order.
	Start *startOrder `json:",omitempty"`
	// Term and Kill are when the command is to be sent these, unless a later order moves
	// them.
	Term, Kill moment
	// Signal is to be passed on.
	Signal syscall.Signal `json:",omitempty"`
	// Lost says that the lease is over now.
	Lost bool `json:",omitempty"`
}

type startOrder struct {
	Path  string
	Args  []string
	Grace time.Duration
	Title string
}

// report is what the monitor tells the run.
type report struct {
	Event event
	PID   int            `json:",omitempty"` // started: the command's
	Errno syscall.Errno  `json:",omitempty"` // failed
	Stop  syscall.Signal `json:",omitempty"` // stopped: by which signal
	Stuck []int          `json:",omitempty"` // stuck: which processes
	Outcome
}

type event string

const (
	eventStarted event = "started"
	eventFailed  event = "failed" // it could not be started; the last one
	eventStopped event = "stopped"
	eventStuck   event = "stuck" // killed, and not gone
	eventGone    event = "gone"  // with all that it started; the last one
)
