package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// boottime is CLOCK_BOOTTIME, which syscall doesn't have. The guard runs before x/sys/unix,
// which has it, is initialised.
const boottime = 7

// sinceBoot reads CLOCK_BOOTTIME, which counts suspend; Go's monotonic clock (CLOCK_MONOTONIC) does
// not: clock_gettime(2).
func sinceBoot() time.Duration {
	var ts syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
