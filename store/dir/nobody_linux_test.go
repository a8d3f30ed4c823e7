package dir_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// asNobody runs a part of a test without the privileges of root, which file modes don't bind:
// it drops those of this thread. Another user has none to drop.
func asNobody(t *testing.T, path string, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		do()
		return
	}
	// The user nobody gets the test's files, and can reach them.
	if err := filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, nobody, nobody)
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsgid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsgid(0) }()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(0) }()
	do()
}
