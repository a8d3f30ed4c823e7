//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// newOrdinaryOutage is newOutage for a repolock of an ordinary user. Limits and permissions
// don't bind root, which runs repolock as the user nobody.
func newOrdinaryOutage(t *testing.T) *outage {
	t.Helper()
	o := newOutage(t)
	if os.Getuid() != 0 {
		return o
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	o.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}

	// Other users can't open the directory of the tests.
	if o.dir, err = os.MkdirTemp("/tmp", "repolock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(o.dir) })
	o.bin = o.path("repolock")
	copyFile(t, os.Args[0], o.bin, 0o755)
	if err := os.Mkdir(o.path("repo"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "repo"} {
		if err := os.Chown(o.path(name), uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(o.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return o
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	path, err := exec.LookPath(from)
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	// A process that is forked while the file is open for writing keeps it open until it
	// executes its program. Until then the file can't be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Close()
	}
	if err == nil {
		err = os.Chmod(to, mode) // with any umask
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guard returns the pid of the guard, or 0.
func (o *outage) guard() int {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(o.cmd.Process.Pid) + "/task/*/children")
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/comm"); string(name) == "repolock-guard\n" {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}
