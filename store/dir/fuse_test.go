//go:build linux && programs

package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// mountedAt returns a new directory on which a program has mounted a file system. The directory is the
// program's last argument.
func mountedAt(t *testing.T, program string, args ...string) string {
	t.Helper()
	mount := t.TempDir()
	run(t, program, append(args, mount)...)
	t.Cleanup(func() { _ = exec.Command("umount", mount).Run() })
	return mount
}

// mounted returns a store on a new mount.
func mounted(t *testing.T, program string, args ...string) *Store {
	t.Helper()
	s, err := Open(t.Context(), mountedAt(t, program, args...))
	assert.OK(t, err)
	return s
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// TestTwoMounts: a store on one mount of a directory lists at once the changes by a store on another
// mount, although sshfs caches listings for 20 s.
func TestTwoMounts(t *testing.T) {
	server := filepath.Join(t.TempDir(), "ssh") // SFTP without a network
	assert.OK(t, os.WriteFile(server, []byte("#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n"), 0o755))
	password := []string{"-q", "-extpass", "echo password"}
	for program, prepare := range map[string]func(t *testing.T, below string) (args []string){
		"sshfs": func(_ *testing.T, below string) []string {
			return []string{"-o", "ssh_command=" + server, "host:" + below}
		},
		"gocryptfs": func(t *testing.T, below string) []string {
			run(t, "gocryptfs", append(password, "-init", below)...)
			return append(password, below)
		},
		"mergerfs": func(t *testing.T, below string) []string {
			a, b := filepath.Join(below, "a"), filepath.Join(below, "b")
			assert.OK(t, errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700)))
			return []string{a + ":" + b}
		},
	} {
		t.Run(program, func(t *testing.T) {
			args := prepare(t, t.TempDir())
			a, b := mounted(t, program, args...), mounted(t, program, args...)
			etag := func() string {
				page, err := b.List(t.Context(), "index/", "")
				assert.OK(t, err)
				if len(page.Objects) == 0 {
					return ""
				}
				return page.Objects[0].ETag
			}
			for _, key := range []string{"index/lock.shared/a", "index/lock.exclusive"} {
				for n := range 5 {
					assert.Equal(t, etag(), "", "before put %d of %s", n, key)
					for body := range 2 {
						o, err := a.Put(t.Context(), key, fmt.Appendln(nil, n, body), store.PutOptions{})
						assert.OK(t, err)
						assert.Equal(t, etag(), o.ETag, "after put %d of %s", n, key)
					}
					assert.OK(t, a.Delete(t.Context(), key))
				}
			}
		})
	}
}

// TestNegativeTimeout: if a mount caches missing names for a minute, and so hides a lock of another
// mount, a listing fails, and its error has the right mount option.
func TestNegativeTimeout(t *testing.T) {
	for _, name := range []string{"index", "index/locks", "index/locks/db", "index/locks/db/lock.intent", "index/locks/db/lock.intent/a"} {
		below := t.TempDir()
		a, b := mounted(t, "bindfs", "-o", "negative_timeout=60", below), mounted(t, "bindfs", "-o", "negative_timeout=60", below)
		assert.OK(t, os.MkdirAll(filepath.Join(a.path, filepath.Dir(name)), 0o700))
		assert.Is(t, assert.Err(os.Stat(filepath.Join(b.path, name))), os.ErrNotExist)
		create(t, a, "index/locks/db/lock.intent/a")
		page, err := b.List(t.Context(), "index/locks/db/lock.", "")
		assert.Says(t, err, err, "mount it with negative_timeout=0", "%s: %v", name, page.Objects)
	}
}

// TestDavfs: a mount of davfs2 is refused, because for 10 s the server has an empty file in place of a lock.
func TestDavfs(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "conf")
	assert.OK(t, os.WriteFile(conf, []byte("ask_auth 0\n"), 0o600))
	_, err := Open(t.Context(), mountedAt(t, "mount.davfs", "-o", "conf="+conf, "http://127.0.0.1:1/")) // without a server
	assert.Says(t, err, store.ErrConfig, "a mount of davfs2 shows other machines an empty file")
}

// TestRcloneMount: a mount of rclone is refused, also through bindfs, because it shows other machines' files minutes late.
// Its EIO for a hard link means that it doesn't support the condition of a put.
func TestRcloneMount(t *testing.T) {
	refused := late
	late = nil
	s := mounted(t, "rclone", "mount", "--daemon", ":local:"+t.TempDir())
	late = refused
	assert.Is(t, assert.Err(s.Put(t.Context(), "index/a", []byte("1"), store.PutOptions{IfAbsent: true})), store.ErrConditionUnsupported)
	assert.OK(t, assert.Err(s.Put(t.Context(), "index/a", []byte("2"), store.PutOptions{})))
	for _, path := range []string{s.path, filepath.Join(s.path, "index"), mountedAt(t, "bindfs", s.path), mountedAt(t, "bindfs", filepath.Join(s.path, "index"))} {
		_, err := Open(t.Context(), path)
		assert.Says(t, err, store.ErrConfig, "rclone shows the locks of other machines minutes late")
	}
}

// TestReplacedOnFUSE: on bindfs and ntfs-3g a file that is being replaced can't be opened for a moment.
// List and Get return it all the same.
func TestReplacedOnFUSE(t *testing.T) {
	t.Run("bindfs", func(t *testing.T) {
		replacing(t, mounted(t, "bindfs", t.TempDir()))
	})
	t.Run("ntfs-3g", func(t *testing.T) {
		image := filepath.Join(t.TempDir(), "image")
		assert.OK(t, os.WriteFile(image, nil, 0o600))
		assert.OK(t, os.Truncate(image, 20<<20))
		run(t, "mkfs.ntfs", "-F", "-q", "-Q", image)
		replacing(t, mounted(t, "ntfs-3g", image))
	})
}

func replacing(t *testing.T, s *Store) {
	const key = "index/lock.shared/a"
	put := func(n int) {
		assert.Is(t, assert.Err(s.Put(t.Context(), key, fmt.Appendln(nil, n), store.PutOptions{})), nil, "put %d", n)
	}
	put(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 1; ctx.Err() == nil; n++ {
			put(n)
		}
	}()
	for n := range 1000 {
		page, err := s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(page.Objects) == 1, "listing %d: %v, %v", n, page.Objects, err)
		_, _, err = s.Get(t.Context(), key, 100)
		assert.Is(t, err, nil, "get %d", n)
	}
	cancel()
	<-ended
}
