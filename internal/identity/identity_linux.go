package identity

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func machineID() string {
	if id := readLine("/etc/machine-id"); id != "" {
		return id
	}
	return readLine("/var/lib/dbus/machine-id")
}

func bootID() string { return readLine("/proc/sys/kernel/random/boot_id") }

func pidNamespace() string {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return ns
}

// startTime is field 22 of /proc/pid/stat, in clock ticks since boot: proc(5).
// Field 2 is the command's name in parentheses and may hold anything, so fields
// are counted from the last parenthesis.
func startTime(pid int) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return n, err == nil
}

// exists treats everything but "no such process" as alive: a process of another
// user answers EPERM.
func exists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
