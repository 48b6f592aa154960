//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package job

import "os"

// Signals are those to catch and pass on: none here.
func Signals() []os.Signal { return nil }

// EndingSignals are those that people end programs with.
func EndingSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// SignalCode is the exit code of a program that a signal ends.
func SignalCode(os.Signal) int { return 1 }

// Intercept does nothing here.
func Intercept() {}

// Supported is ErrUnsupported here.
func Supported() error { return ErrUnsupported }

// Run is not supported here.
func Run(Command) (Outcome, error) { return Outcome{}, ErrUnsupported }
