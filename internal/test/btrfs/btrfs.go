// Package btrfs makes a file system for a test. It needs root, and Debian's btrfs-progs.
package btrfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// Mount returns the directory of a new btrfs, which is in a file, and ends with the test.
func Mount(t testing.TB) string {
	t.Helper()
	image, mount := filepath.Join(t.TempDir(), "image"), t.TempDir()
	assert.OK(t, os.WriteFile(image, nil, 0o600))
	assert.OK(t, os.Truncate(image, 128<<20))
	for _, args := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, mount}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		assert.That(t, err == nil, "%v: %v: %s", args, err, out)
	}
	t.Cleanup(func() { assert.OK(t, exec.Command("umount", "-l", mount).Run()) }) // a process that uses it might still end
	return mount
}
