//go:build programs

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// template is the data directory that each server gets a copy of: initdb takes seconds.
var template struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package, and removes what servers have shared.
func Main(m *testing.M) {
	code := m.Run()
	Clean()
	os.Exit(code)
}

// Clean removes what servers have shared, for packages whose tests Main doesn't run. No server
// can be started afterwards.
func Clean() {
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
}

// data fills an empty directory with a new cluster of databases.
func data(t testing.TB, dir string) {
	t.Helper()
	template.once.Do(initialize)
	if template.err != nil {
		t.Fatal(template.err)
	}
	if out, err := command("cp", "-a", filepath.Join(template.dir, "data"), dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

func initialize() {
	template.dir, template.err = open("repolock-pgtest-")
	if template.err != nil {
		return
	}
	initdb := command(program("initdb"), "--pgdata", filepath.Join(template.dir, "data"), "--username=postgres",
		"--auth=trust", "--no-sync", "--wal-segsize=1", "--locale=C.UTF-8", "--encoding=UTF8")
	if out, err := initdb.CombinedOutput(); err != nil {
		template.err = fmt.Errorf("initdb: %w\n%s", err, out)
	}
}

// open makes a directory in which the servers' user can write. Its path is short enough for the
// name of a socket.
func open(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	return dir, err
}

// program returns the path of a program of the newest PostgreSQL.
func program(name string) string {
	found, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name))
	if len(found) == 0 {
		return name // which isn't found, as the error says
	}
	return slices.MaxFunc(found, func(a, b string) int { return release(a) - release(b) })
}

func release(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// command returns a command that runs as the user postgres if we are root, whom the servers
// refuse, and that ends with us.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return c
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		c.Err = err
		return c
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return c
}
