//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package incident

import "syscall"

func killWithParent(*syscall.SysProcAttr) {}
