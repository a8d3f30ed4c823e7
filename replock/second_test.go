package replock

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store/memory"
)

// stepped are stores whose clock a test sets: with and without If-Match, with a time on each page and without.
var stepped = kinds{
	"kept": {}, "claimed": claiming, "lacked": lacking, "ignored": ignoring, "second": {Precision: time.Second, NoTime: true},
	"lacked, of seconds": {IfMatch: memory.Lacked, Precision: time.Second}, "paged": {IfMatch: memory.Lacked, PageSize: 1},
	"lacked, no time": {IfAbsent: memory.Lacked, IfMatch: memory.Lacked, NoTime: true},
}

// TestStoreClockSteps: the store's clock is set forward by more than the ttl, and perhaps back. A holder whose refreshes
// are answered keeps its lock, and resumes it after a later outage. Nothing is left after its release.
func TestStoreClockSteps(t *testing.T) {
	for _, after := range rounds.Fewer(
		[]time.Duration{500 * time.Millisecond, 7 * time.Second, 25500 * time.Millisecond, 29 * time.Second, 55 * time.Second},
		[]time.Duration{7 * time.Second, 29 * time.Second}) {
		for _, back := range []time.Duration{0, 3 * time.Second, 4 * time.Minute} {
			for _, look := range []time.Duration{DefaultLook, DefaultTTL} {
				stepped.modes(t, func(t *testing.T, w *world, mode Mode) {
					a, k := w.holder(t, mode, func(o *Options) { o.Look = look })
					time.Sleep(after)
					w.skew.Add(int64(time.Hour))
					if back > 0 {
						time.AfterFunc(back, func() { w.skew.Add(int64(-time.Hour)) })
					}
					time.Sleep(10 * time.Minute)
					lives(t, k)
					a.outlives(t, k)
					mustResume(t, k)
					w.leavesNothing(k)
				})
			}
		}
	}
}
