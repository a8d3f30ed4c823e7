//go:build programs

package pgtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// tree returns a process and its children. A server's process for a session is a child, in a
// process group of its own.
func tree(pid int) []int {
	all := []int{pid}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		_, after, ok := bytes.Cut(text, []byte(") ")) // behind the name
		if err != nil || !ok {
			continue
		}
		fields := bytes.Fields(after)
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all = append(all, child)
		}
	}
	return all
}

func signal(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}
