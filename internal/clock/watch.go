package clock

import (
	"context"
	"time"
)

// Watch lets one goroutine wait on a clock. A wait ends early if the machine was suspended, which Go's timers don't
// count, or its wall clock was set. On Linux the kernel reports both. On other systems, and with a Clock other than
// System, a wait lasts at most a Tick.
type Watch struct {
	clock Clock
	alarm *alarm // nil if the system has none
}

// NewWatch returns a Watch. Its owner must call Stop.
func NewWatch(c Clock) *Watch {
	w := &Watch{clock: c}
	if _, ok := c.(System); ok && !InBubble(time.Now()) {
		w.alarm = newAlarm()
	}
	return w
}

// Stop frees the kernel's timers.
func (w *Watch) Stop() {
	if w.alarm != nil {
		w.alarm.stop()
	}
}

// After returns a channel that receives when d has passed, or earlier, when the clock must be read again. It
// replaces the channel of an earlier call.
func (w *Watch) After(d time.Duration) <-chan time.Time {
	if w.alarm != nil && w.alarm.set(d) {
		return w.alarm.c
	}
	return w.clock.After(min(d, Tick))
}

// Sleep returns nil when d has passed, or earlier, when the clock must be read again. It returns the
// context's error if the context has ended.
func (w *Watch) Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-ctx.Done():
		case <-w.After(d):
		}
	}
	return ctx.Err()
}
