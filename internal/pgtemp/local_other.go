//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package pgtemp

import (
	"context"
	"errors"
	"os/exec"
)

// localSupported says whether this package can run binaries of this machine.
const localSupported = false

// startLocal is never reached: find gives no directory where none can be used.
func startLocal(context.Context, string, *Options) (backend, error) {
	return nil, errors.ErrUnsupported
}

// detach has nothing to do here.
func detach(*exec.Cmd) {}
