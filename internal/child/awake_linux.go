package child

import (
	"os"
	"strconv"
)

// awake are the processes of a group that run; of a group that was killed, all that there
// are. denied reports whether we may not signal a process.
func awake(pgid int, killed bool, denied func(pid int) bool) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(e.Name()); ok && s.group == pgid && !s.dead && (killed || runs(pid, s, denied)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs reports whether a process isn't stopped.
func runs(pid int, s stat, denied func(pid int) bool) bool {
	if s.state != "Z" {
		return active(s.state, pid, denied)
	}
	// Its first thread has ended, and says nothing of the others.
	tasks := strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir("/proc/" + tasks)
	for _, t := range threads {
		if s, ok := readStat(tasks + t.Name()); ok && active(s.state, pid, denied) {
			return true
		}
	}
	return false
}

// active reports whether a thread in this state runs, or will: proc_pid_stat(5).
func active(state string, pid int, denied func(pid int) bool) bool {
	switch state {
	case "T", "t", "Z", "X":
		return false
	case "D":
		// It waits for a disk, or in vfork(2) for a child that is stopped, and stops
		// before it does anything else, if it got the signal.
		return denied(pid)
	}
	return true
}
