package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// startTimeout is how long a server may take to answer.
const startTimeout = 20 * time.Second

// run starts a server of this machine's in a directory of its own, with the arguments
// that args gives for it, and stops it and removes that on close. It says where to
// reach it.
func (s *server) run(ctx context.Context, name string, args func(dir string) (list []string, address string)) (address string, err error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not on this machine", name)
	}
	dir, err := os.MkdirTemp("", "gatepost-peers-")
	if err != nil {
		return "", err
	}
	s.later(func() { _ = os.RemoveAll(dir) })
	list, address := args(dir)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, list...)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.later(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
	})
	return address, nil
}

// ready waits until a server answers.
func ready(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, time.Second)
		err := ping(try)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
