package procgroup

import (
	"os"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// runningMembers returns the processes of a group that aren't stopped. If the group was killed, it returns all
// processes that haven't ended. denied reports whether we may not signal a process.
func runningMembers(pgid int, killed bool, denied func(pid int) bool) (pids []int) {
	if pgid <= 1 { // the group doesn't exist yet; 0 is the group of the kernel's threads
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := procstat.Read(e.Name()); ok && s.Group == pgid && !s.Ended && (killed || runs(pid, s, denied)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs reports whether a process is not stopped.
func runs(pid int, s procstat.Stat, denied func(pid int) bool) bool {
	if s.State != "Z" {
		return active(s.State, pid, denied)
	}
	// The first thread has ended, and others can run: s shows only the first.
	tasks := strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir("/proc/" + tasks)
	for _, t := range threads {
		if s, ok := procstat.Read(tasks + t.Name()); ok && active(s.State, pid, denied) {
			return true
		}
	}
	return false
}

// active reports whether a thread in this state runs or can run: proc_pid_stat(5).
func active(state string, pid int, denied func(pid int) bool) bool {
	switch state {
	case "T", "t", "Z", "X":
		return false
	case "D":
		// The thread waits for a disk, or in vfork(2) for a child. A stop signal that we may send takes
		// effect before it does anything else.
		return denied(pid)
	}
	return true
}
