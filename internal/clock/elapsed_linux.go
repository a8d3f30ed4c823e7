package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// CLOCK_BOOTTIME counts suspend; Go's monotonic clock (CLOCK_MONOTONIC) does
// not: clock_gettime(2).
const elapsedClock = unix.CLOCK_BOOTTIME

func elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(elapsedClock, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
