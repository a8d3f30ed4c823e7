//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// flockHolder names the holder of a directory's flock, which only Linux shows. proc_locks(5)
// has only the locks of our pid namespace, and on some file systems (btrfs) another device
// number than stat(2).
func flockHolder(self *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(self.Fd()), &st) != nil {
		return heldByAnother
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return heldByAnother
	}
	pid := flockPID(string(locks), uint64(st.Dev), st.Ino)
	if pid == 0 {
		return heldByAnother
	}
	if pid == os.Getpid() {
		return fmt.Sprintf("is held by this process itself (pid %d)", pid)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("was taken by process %d, and is held by one that it has started", pid)
	}
	return fmt.Sprintf("is held by process %d (%s)", pid, strings.TrimSpace(string(name)))
}

// flockPID finds the holder in a text of proc_locks(5), such as
//
//	3: FLOCK  ADVISORY  WRITE 1397 fe:00:762101 0 EOF
//
// A process that waits for a lock has an arrow after the number. It returns 0 if there is
// no holder.
func flockPID(locks string, dev, ino uint64) int {
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
