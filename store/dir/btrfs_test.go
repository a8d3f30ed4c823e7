//go:build linux && programs

package dir

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/btrfs"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// TestReplacedOnBtrfs: on btrfs, and on overlayfs above it, an open directory shows no file that was replaced after it
// was opened. A listing shows a flag that is replaced in each of the first five scans.
func TestReplacedOnBtrfs(t *testing.T) {
	mount := btrfs.Mount(t)
	assert.OK(t, errors.Join(os.Mkdir(mount+"/lower", 0o700), os.Mkdir(mount+"/upper", 0o700), os.Mkdir(mount+"/work", 0o700), os.Mkdir(mount+"/plain", 0o700)))
	overlay := t.TempDir()
	run(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+mount+"/lower,upperdir="+mount+"/upper,workdir="+mount+"/work", overlay)
	t.Cleanup(func() { assert.OK(t, exec.Command("umount", overlay).Run()) })
	for _, path := range []string{mount + "/plain", overlay} {
		s, err := Open(t.Context(), path)
		assert.OK(t, err)
		create(t, s, "index/lock.shared/a")
		scans, past := 0, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		assert.OK(t, os.Chtimes(path+"/index/lock.shared", past, past))
		s.scan = func(_ context.Context, d *directory, wanted files.Wanted) ([]string, error) {
			if filepath.Base(d.path) != "lock.shared" {
				return scan(t.Context(), d, wanted)
			}
			f, err := d.Open(".")
			assert.OK(t, err)
			defer f.Close()
			if scans++; scans <= 5 {
				create(t, s, "index/lock.shared/a")
				assert.OK(t, os.Chtimes(d.path, past, past)) // as by a program that copies times
			}
			names, err := f.Readdirnames(-1)
			assert.That(t, err == nil || err == io.EOF, "%v", err)
			return names, nil
		}
		assert.Equal(t, keys(t, s), []string{"index/lock.shared/a"}, path)
	}
}

// BenchmarkBtrfs puts and lists on btrfs, where a listing waits for the end of a tick.
func BenchmarkBtrfs(b *testing.B) {
	s, err := Open(b.Context(), btrfs.Mount(b))
	assert.OK(b, err)
	for b.Loop() {
		assert.OK(b, assert.Err(s.Put(b.Context(), "index/lock.shared/a", nil, store.PutOptions{})))
		assert.OK(b, assert.Err(s.List(b.Context(), "index/lock.", "")))
	}
}
