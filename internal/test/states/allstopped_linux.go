package states

import (
	"os"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// AllStopped reports whether a signal has stopped each thread of a process. Until then the process can
// act, although its first thread is stopped.
func AllStopped(pid int) bool {
	process := strconv.Itoa(pid)
	threads, err := os.ReadDir("/proc/" + process + "/task")
	for _, t := range threads {
		if s, ok := procstat.Read(process + "/task/" + t.Name()); ok && s.State != "T" {
			return false
		}
	}
	return err == nil && len(threads) > 0
}
