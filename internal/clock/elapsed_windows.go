package clock

import (
	"time"

	"golang.org/x/sys/windows"
)

// GetTickCount64 counts sleep and hibernation.
func elapsed() time.Duration { return windows.DurationSinceBoot() }
