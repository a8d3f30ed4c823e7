package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Elapsed reads CLOCK_BOOTTIME, which counts suspend; Go's monotonic clock (CLOCK_MONOTONIC) does
// not: clock_gettime(2).
func (System) Elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
