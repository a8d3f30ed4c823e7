package torture

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/repolock/repolock/internal/procstat"
)

// mark is the variable in the environment by which a trial finds its processes, whatever
// their parents, groups and sessions are. A program that empties its environment hides.
const mark = "REPOLOCK_TORTURE"

// marked returns the live processes whose mark begins with a text.
func marked(begins string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // empty of another user's
		if !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"="+begins)) {
			continue
		}
		if p, ok := procstat.Read(e.Name()); ok && !p.Ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signalMarked signals all of them. It looks again until it finds no new ones: a process can
// start another meanwhile. The first is signalled before the others.
func signalMarked(begins string, first int, sig syscall.Signal) {
	done := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		pids := marked(begins)
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

// seesFaketime reports whether one of the processes asks libfaketime for the time. A Go program
// can load it, but asks the kernel.
func seesFaketime(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		proc := "/proc/" + strconv.Itoa(pid)
		maps, _ := os.ReadFile(proc + "/maps")
		_, err := buildinfo.ReadFile(proc + "/exe")
		return bytes.Contains(maps, []byte("libfaketime")) && err != nil
	})
}

// alive reports whether a process that was started at a time since boot is still there.
func alive(pid int, start uint64) bool {
	p, ok := procstat.Read(strconv.Itoa(pid))
	return ok && !p.Ended && p.Start == start
}
