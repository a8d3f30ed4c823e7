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

// stat is what proc_pid_stat(5) says of a process.
type stat struct {
	start uint64 // in clock ticks since boot
	// zombie: it has ended, and its parent hasn't noticed, which in a container
	// whose process 1 is no init never does.
	zombie bool
}

// readStat counts the fields from the last parenthesis: the second is the command's
// name in parentheses, and may hold anything.
func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, threads, start = 0, 17, 19 // fields 3, 20 and 22
	if len(fields) <= start {
		return stat{}, false
	}
	n, err := strconv.ParseUint(string(fields[start]), 10, 64)
	// A process whose first thread has ended looks like a zombie, but has others.
	others := string(fields[threads]) != "1" && string(fields[threads]) != "0"
	return stat{start: n, zombie: string(fields[state]) == "Z" && !others}, err == nil
}

// exists treats everything but "no such process" as alive: a process of another
// user answers EPERM.
func exists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
