// Package wallclock steps the wall clock of its own process, as an operator or ntpd steps
// a machine's: time.Now is ahead or behind from then on, in this process's every package,
// and the monotonic clock, which durations and timers go by, is not. For the fault suite.
//
// A preloaded libfaketime does not reach a Go program, which calls the kernel's vDSO by
// itself, and a time namespace steps the monotonic clock and the boot time only. So this
// puts itself between the Go runtime and the vDSO.
package wallclock
