package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// boottime is CLOCK_BOOTTIME. Package syscall lacks the constant, and x/sys/unix is initialised too
// late for the guard.
const boottime = 7

// sinceBoot reads CLOCK_BOOTTIME, which counts suspend. Go's monotonic clock, CLOCK_MONOTONIC,
// doesn't: clock_gettime(2).
func sinceBoot() time.Duration {
	var ts syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
