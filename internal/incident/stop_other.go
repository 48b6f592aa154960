//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package incident

import (
	"errors"
	"os"
	"syscall"
)

// canStop is false: the demo says so and does nothing else.
const canStop = false

func childAttributes() *syscall.SysProcAttr { return nil }
func signalStop(*os.Process) error          { return errors.ErrUnsupported }
func signalWake(*os.Process) error          { return errors.ErrUnsupported }
func isStopped(int) (bool, error)           { return false, errors.ErrUnsupported }
