package clock

import (
	"time"

	"golang.org/x/sys/windows"
)

// sinceBoot reads GetTickCount64, which counts sleep and hibernation.
func sinceBoot() time.Duration { return windows.DurationSinceBoot() }
