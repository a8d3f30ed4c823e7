package identity

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/lazyregexp"
)

func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func machineID() string {
	return cmp.Or(readLine("/etc/machine-id"), readLine("/var/lib/dbus/machine-id"))
}

func bootID() string { return readLine("/proc/sys/kernel/random/boot_id") }

func pidNamespace() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}

// timeNamespace returns the time namespace of this process. Its children have the same one, because
// this process doesn't call unshare(2).
func timeNamespace() string { return timeNamespaceIn("/proc/self/ns") }

// timeNamespaceIn reads a directory of proc_pid_ns(5). It returns "none" if the kernel has no time
// namespaces (before Linux 5.6, or built without them), and "" if it can't find out.
func timeNamespaceIn(dir string) string {
	ns, err := os.Readlink(filepath.Join(dir, "time"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Readlink(filepath.Join(dir, "pid")); err == nil {
			return "none"
		}
	}
	return ns
}

// Caller returns the pid of the process that called this one. A shell can fork a copy of itself that ends with
// the command, as in T=$(command || exit). Then Caller returns the shell itself.
func Caller() int {
	pid := os.Getppid()
	for {
		s, ok := readStat(pid)
		if !ok || !s.Forked || !isShell(pid) || !sameProgram(pid, s.Parent) {
			return pid
		}
		pid = s.Parent
	}
}

var shells = lazyregexp.New(`^(r?bash|dash|ash|[a-z]*ksh|zsh|yash|posh|hush|sh|busybox|toybox)[-0-9._]*$`)

// isShell reports whether a process is a shell. If another program forks a copy of itself, such as a worker, the
// copy is the caller.
func isShell(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && shells.MatchString(strings.TrimSuffix(filepath.Base(exe), " (deleted)"))
}

// sameProgram reports whether two processes run the same program with the same arguments.
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
