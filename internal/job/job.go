package job

import (
	"errors"
	"os"
	"time"
)

// Lease is what a job has to know of the lease that it runs under; a *pglock.Lease is one.
type Lease interface {
	// Deadline is until when it is trusted unless renewed. The database must not give it
	// to another before Deadline + Grace + Lead.
	Deadline() time.Time
	Done() <-chan struct{} // closed when it is over
	Err() error            // why; nil before
}

// Command is what to run.
type Command struct {
	// Path is the program, and Args its arguments, its name first.
	Path string
	Args []string
	// Env is the whole environment, NAME=value each.
	Env []string
	// Lease ends the command when it is over; Renewed tells, after each renewal, that its
	// Deadline may have changed.
	Lease   Lease
	Renewed <-chan struct{}
	// Title is for people who look at the list of processes, and in a last message of the
	// monitor: which lease it is.
	Title string
	// Grace is the time between TERM and KILL. Lead is the time that is left between KILL
	// and the moment from which another may have the lease.
	Grace, Lead time.Duration
	// Signals are passed on to the command's group.
	Signals <-chan os.Signal
	// Stuck is told, once, of processes that don't end although they were killed. Nil: no one is.
	Stuck func(pids []int)
}

// Outcome is how a command ended.
type Outcome struct {
	// Code is the command's exit code, or 128 and the number of the signal that ended it.
	Code int
	// Lost says that the lease was over before the command was.
	Lost bool
	// Left is how many processes the command left behind, all of which were ended.
	Left int
	// Killed says that TERM was not enough.
	Killed bool
}

// ErrUnsupported says that this system has no process groups and signals.
var ErrUnsupported = errors.New("a command under a lease needs the process groups and signals of Linux, macOS or a BSD: not supported on this system")

// ErrMonitorGone says that the monitor was killed, and the command with it.
var ErrMonitorGone = errors.New("the monitor process was killed, and so the command was ended")

// StartError is a command that could not be started.
type StartError struct {
	Path string
	Err  error
}

func (e *StartError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *StartError) Unwrap() error { return e.Err }
