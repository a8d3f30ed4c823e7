package states

import (
	"os"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// processes reads /proc: small systems have no ps.
func processes() (all []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := procstat.Read(e.Name())
		if !ok {
			continue
		}
		if s.State == "Z" && !s.Ended {
			s.State = "R"
		}
		all = append(all, process{pid, s.Group, s.State})
	}
	return all
}

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
