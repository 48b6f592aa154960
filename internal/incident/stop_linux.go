package incident

import "syscall"

// killWithParent also ends a child that is stopped.
func killWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
