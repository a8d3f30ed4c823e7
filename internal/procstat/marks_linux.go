package procstat

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Marked returns the live processes whose environment has a variable that begins with mark. It finds
// them in any process group and session, but not if their program has cleared its environment.
func Marked(mark string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // not readable for another user's process
		if !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark)) {
			continue
		}
		if p, ok := Read(e.Name()); ok && !p.Ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SignalMarked signals all marked processes. It repeats the search until it finds no new process,
// because a process can start another before the signal arrives. If first is marked, it is signalled
// before the others.
func SignalMarked(mark string, first int, sig syscall.Signal) {
	done := map[int]bool{}
	for found := true; found; {
		found = false
		pids := Marked(mark)
		if slices.Contains(pids, first) {
			pids = append([]int{first}, pids...)
		}
		for _, pid := range pids {
			if !done[pid] {
				_ = syscall.Kill(pid, sig)
				done[pid], found = true, true
			}
		}
	}
}
