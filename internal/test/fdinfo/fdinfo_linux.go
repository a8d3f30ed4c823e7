// Package fdinfo reads what the kernel shows of the files of a process, for tests: proc_pid_fdinfo(5).
package fdinfo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// Timer is a timerfd.
type Timer struct {
	Clock int           // of timerfd_create(2)
	Flags int           // of the last timerfd_settime(2)
	Left  time.Duration // until it expires, or 0
}

// Timers returns the timers of a process.
func Timers(t testing.TB, pid int) (all []Timer) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	files, err := os.ReadDir(dir + "fd")
	assert.OK(t, err)
	for _, f := range files {
		text, err := os.ReadFile(dir + "fdinfo/" + f.Name())
		if err != nil {
			continue // it was closed
		}
		var timer Timer
		var seconds, nanoseconds int64
		found := 0
		for line := range strings.Lines(string(text)) {
			for format, fields := range map[string][]any{
				"clockid: %d": {&timer.Clock}, "settime flags: %o": {&timer.Flags}, "it_value: (%d, %d)": {&seconds, &nanoseconds},
			} {
				if n, _ := fmt.Sscanf(line, format, fields...); n == len(fields) {
					found++
				}
			}
		}
		if found == 3 {
			timer.Left = time.Duration(min(seconds, int64(100*365*24*3600)))*time.Second + time.Duration(nanoseconds)
			all = append(all, timer)
		}
	}
	return all
}
