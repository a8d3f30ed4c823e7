package clock

import (
	"time"

	"golang.org/x/sys/windows"
)

// Elapsed reads GetTickCount64, which counts sleep and hibernation.
func (System) Elapsed() time.Duration { return windows.DurationSinceBoot() }
