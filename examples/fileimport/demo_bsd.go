//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "syscall"

func killWithParent(*syscall.SysProcAttr) {}
