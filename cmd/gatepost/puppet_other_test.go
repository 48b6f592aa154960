//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "syscall"

func newSession() *syscall.SysProcAttr { return nil }
