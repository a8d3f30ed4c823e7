package procstat

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Marked returns the live processes with a variable in their environment that begins with a mark, whatever
// their parents, groups and sessions are. A program that empties its environment hides.
func Marked(mark string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // empty of another user's
		if !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark)) {
			continue
		}
		if p, ok := Read(e.Name()); ok && !p.Ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SignalMarked signals all of them. It looks again until it finds no new ones: a process can
// start another meanwhile. The first, if it is one of them, is signalled before the others.
func SignalMarked(mark string, first int, sig syscall.Signal) {
	done := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		pids := Marked(mark)
		if slices.Contains(pids, first) {
			pids = append([]int{first}, pids...)
		}
		for _, pid := range pids {
			if !done[pid] {
				_ = syscall.Kill(pid, sig)
				done[pid], fresh = true, true
			}
		}
	}
}
