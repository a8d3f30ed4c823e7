//go:build unix

package beads

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipeIsNotWaitedFor: a pipe that takes the place of the lock while it is read is trouble,
// and isn't waited for.
func TestPipeIsNotWaitedFor(t *testing.T) {
	b, c := seen(t)
	pipe := filepath.Join(b.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := readFile(pipe, c.info); err != nil || now.trouble == "" {
		t.Errorf("%+v, %v", now, err)
	}
}
