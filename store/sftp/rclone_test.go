//go:build programs && unix

package sftp

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// ofRclone returns rclone's server, without ssh. Each connection has a server of its own, as two servers of one directory.
func ofRclone(fresh bool, args ...string) server {
	return func(ctx context.Context, root string) (*conn, error) {
		return connect(ctx, target{command: append([]string{"rclone", "serve", "sftp", "--stdio", root}, args...), root: "/", fresh: fresh})
	}
}

// TestRealRclone: rclone serve sftp is refused, and leaves no file. Without its cache, and with listings=fresh, locks are
// kept there: what one server stores, another lists at once. Debian's rclone 1.60 answers a hard link with success and
// makes none, and later ones refuse it.
func TestRealRclone(t *testing.T) {
	root := t.TempDir()
	_, err := ofRclone(false).on(t, root).List(t.Context(), "index/", "")
	assert.Says(t, err, store.ErrConfig, "looks like rclone serve sftp")
	has(t, root)

	uncached := ofRclone(true, "--dir-cache-time", "0s")
	a, b := uncached.on(t, root), uncached.on(t, root)
	listed := func(want ...string) {
		t.Helper()
		p, err := b.List(t.Context(), "index/lock.", "")
		assert.OK(t, err)
		assert.Equal(t, keys(p), want)
	}
	listed()
	for range 3 {
		put(t, a, "index/lock.intent/a")
		listed("index/lock.intent/a")
		_, err = a.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{IfAbsent: true})
		assert.Is(t, err, store.ErrConditionUnsupported)
		put(t, a, "index/lock.exclusive")
		listed("index/lock.exclusive", "index/lock.intent/a")
		assert.OK(t, a.Delete(t.Context(), "index/lock.exclusive"))
		assert.OK(t, a.Delete(t.Context(), "index/lock.intent/a"))
		listed()
	}
	has(t, root, "index/", "index/lock.intent/")
}

// TestRealMountOfRclone: a server whose directory is a mount of rclone is refused, also through bindfs.
func TestRealMountOfRclone(t *testing.T) {
	mounted := func(program ...string) string {
		mount := t.TempDir()
		if out, err := exec.Command(program[0], append(program[1:], mount)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", program, err, out)
		}
		t.Cleanup(func() { _ = exec.Command("umount", "--lazy", mount).Run() }) // the server might still end
		return mount
	}
	of := t.TempDir()
	assert.OK(t, os.Mkdir(filepath.Join(of, "below"), 0o755))
	mount := mounted("rclone", "mount", "--daemon", ":local:"+of)
	for _, root := range []string{mount, filepath.Join(mount, "below"), mounted("bindfs", mount)} {
		_, err := ofOpenSSH.on(t, root).List(t.Context(), "index/", "")
		assert.Says(t, err, store.ErrConfig, "in a mount of rclone")
	}
}
