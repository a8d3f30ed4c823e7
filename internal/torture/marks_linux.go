package torture

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"slices"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// mark is the variable in the environment by which a trial finds its processes.
const mark = "REPOLOCK_TORTURE"

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
