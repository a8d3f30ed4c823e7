package procgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// leastTasks is the number of further processes and threads that a run needs at least: ours, the guard's and the
	// starter's. With more than two processors it can need more.
	leastTasks = 20
	// leastMemory is the address space, in bytes, that a run needs at least.
	leastMemory = 80 << 20
)

// getrlimit is a hook for tests: if this user may have no further thread, Go's runtime crashes as soon as it needs one.
var getrlimit = unix.Getrlimit

func checkRoom() error {
	var most unix.Rlimit
	if getrlimit(unix.RLIMIT_AS, &most) == nil && most.Cur != unix.RLIM_INFINITY {
		pages, _, _ := strings.Cut(contents("/proc/self/statm"), " ")
		used, _ := strconv.ParseUint(pages, 10, 64)
		if used *= uint64(os.Getpagesize()); most.Cur < used+leastMemory {
			return fmt.Errorf("%w: ulimit -v allows %d MB of address space, of which Go's runtime has reserved %d", ErrNoRoom, most.Cur>>20, used>>20)
		}
	}
	if err := crowded(contents("/proc/self/cgroup"), "/sys/fs/cgroup"); err != nil {
		return err
	}
	if getrlimit(unix.RLIMIT_NPROC, &most) != nil || most.Cur >= uint64(tasks())+leastTasks {
		return nil
	}
	own := status("self")
	if caps, _ := strconv.ParseUint(own["CapEff"], 16, 64); own["Uid"] == "0" || caps&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0 {
		return nil // the limit isn't for us
	}
	used := uint64(0)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if s := status(e.Name()); s["Uid"] == own["Uid"] {
			threads, _ := strconv.ParseUint(s["Threads"], 10, 64)
			used += threads
		}
	}
	if most.Cur < used+leastTasks {
		return fmt.Errorf("%w: ulimit -u allows this user %d processes and threads, and %d run already", ErrNoRoom, most.Cur, used)
	}
	return nil
}

// crowded returns ErrNoRoom if a control group of this process, or one above it, allows too few further tasks. groups is
// cgroup(7)'s list of the groups, and root the directory with the hierarchies.
func crowded(groups, root string) error {
	for line := range strings.Lines(groups) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(words) < 3 || words[1] != "" && !slices.Contains(strings.Split(words[1], ","), "pids") {
			continue
		}
		top := filepath.Join(root, words[1]) // version 2 has one hierarchy, without a name
		for dir := filepath.Join(top, words[2]); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			most, err := strconv.ParseUint(strings.TrimSpace(contents(dir+"/pids.max")), 10, 64) // "max" is none
			used, uerr := strconv.ParseUint(strings.TrimSpace(contents(dir+"/pids.current")), 10, 64)
			if err == nil && uerr == nil && most < used+leastTasks {
				return fmt.Errorf("%w: a control group allows %d processes and threads (pids.max), and %d run already", ErrNoRoom, most, used)
			}
		}
	}
	return nil
}

// tasks returns the number of all threads of the system: proc_loadavg(5).
func tasks() int {
	_, rest, _ := strings.Cut(contents("/proc/loadavg"), "/")
	all, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(all)
	return n
}

// status returns the first word of each line of proc_pid_status(5). A process that is gone has none.
func status(pid string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(contents("/proc/" + pid + "/status")) {
		if words := strings.Fields(line); len(words) > 1 {
			all[strings.TrimSuffix(words[0], ":")] = words[1]
		}
	}
	return all
}

func contents(file string) string {
	text, _ := os.ReadFile(file)
	return string(text)
}
