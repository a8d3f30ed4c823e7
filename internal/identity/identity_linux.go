package identity

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// timeNamespace is that of this process. The one of its children,
// time_for_children, is another after unshare(2) alone.
func timeNamespace() string { return timeNamespaceIn("/proc/self/ns") }

// timeNamespaceIn reads a directory of proc_pid_ns(5). If it has namespaces, but none
// of time, the kernel has none: Linux before 5.6, or built without them.
func timeNamespaceIn(dir string) string {
	ns, err := os.Readlink(filepath.Join(dir, "time"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Readlink(filepath.Join(dir, "pid")); err == nil {
			return "none"
		}
	}
	if err != nil {
		return ""
	}
	return ns
}

// stat is what proc_pid_stat(5) says of a process.
type stat struct {
	parent int
	forked bool   // and has executed nothing since, as far as the system tells
	start  uint64 // in clock ticks since boot
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
	const state, parent, flags, threads, start = 0, 1, 6, 17, 19 // fields 3, 4, 9, 20 and 22
	if len(fields) <= start {
		return stat{}, false
	}
	n, err := strconv.ParseUint(string(fields[start]), 10, 64)
	// A process whose first thread has ended looks like a zombie, but has others.
	others := string(fields[threads]) != "1" && string(fields[threads]) != "0"
	ppid, _ := strconv.Atoi(string(fields[parent]))
	bits, _ := strconv.ParseUint(string(fields[flags]), 10, 64)
	const forkNoExec = 0x40 // PF_FORKNOEXEC of include/linux/sched.h
	return stat{parent: ppid, forked: bits == 0 || bits&forkNoExec != 0, start: n, zombie: string(fields[state]) == "Z" && !others}, err == nil
}

// Caller is the process that called this one. Where that is a shell's copy of itself, as
// in T=$(command || exit), it is the shell: the copy ends with the command.
func Caller() int {
	pid := os.Getppid()
	for {
		s, ok := readStat(pid)
		if !ok || !s.forked || !isShell(pid) || !sameProgram(pid, s.parent) {
			return pid
		}
		pid = s.parent
	}
}

var shells = regexp.MustCompile(`^(r?bash|dash|ash|[a-z]*ksh|zsh|yash|posh|hush|sh|busybox|toybox)[-0-9._]*$`)

// isShell: a copy of any other program is a process for its own sake, such as a worker.
func isShell(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && shells.MatchString(strings.TrimSuffix(filepath.Base(exe), " (deleted)"))
}

// sameProgram reports whether two processes have been called as the same program with the
// same arguments.
func sameProgram(a, b int) bool {
	for _, what := range []func(string) (string, error){
		func(dir string) (string, error) { return os.Readlink(dir + "/exe") },
		func(dir string) (string, error) { b, err := os.ReadFile(dir + "/cmdline"); return string(b), err },
	} {
		of, err := what("/proc/" + strconv.Itoa(a))
		same, err2 := what("/proc/" + strconv.Itoa(b))
		if err != nil || err2 != nil || of != same {
			return false
		}
	}
	return true
}
