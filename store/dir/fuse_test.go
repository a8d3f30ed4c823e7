//go:build linux && programs

package dir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// mounted returns a new directory on which a program has mounted a file system.
func mounted(t *testing.T, program string, args func(mount string) []string) *Store {
	t.Helper()
	mount := t.TempDir()
	out, err := exec.Command(program, args(mount)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	t.Cleanup(func() { _ = exec.Command("fusermount3", "-u", mount).Run() })
	s, err := Open(t.Context(), mount, Options{})
	assert.OK(t, err)
	return s
}

// sshfs mounts a directory by SFTP, as sshfs does by default, without a network.
func sshfs(t *testing.T, below string) *Store {
	server := filepath.Join(t.TempDir(), "ssh")
	assert.OK(t, os.WriteFile(server, []byte("#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n"), 0o755))
	return mounted(t, "sshfs", func(mount string) []string { return []string{"-o", "ssh_command=" + server, "host:" + below, mount} })
}

// TestTwoMounts: a store on one mount of a directory lists at once what a store on another has put, replaced or
// deleted, although sshfs caches listings for 20 s.
func TestTwoMounts(t *testing.T) {
	below := t.TempDir()
	a, b := sshfs(t, below), sshfs(t, below)
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
}

// TestRcloneMount: a mount that shows other machines' files minutes late is refused. It has no hard links either, which
// it says by EIO: a put that must not overwrite is refused as a condition that isn't supported.
func TestRcloneMount(t *testing.T) {
	below := t.TempDir()
	refused := late
	late = nil
	s := mounted(t, "rclone", func(mount string) []string { return []string{"mount", "--daemon", ":local:" + below, mount} })
	late = refused
	assert.Is(t, assert.Err(s.Put(t.Context(), "index/a", []byte("1"), store.PutOptions{IfAbsent: true})), store.ErrConditionUnsupported)
	assert.OK(t, assert.Err(s.Put(t.Context(), "index/a", []byte("2"), store.PutOptions{})))
	_, err := Open(t.Context(), s.path, Options{})
	assert.Is(t, err, store.ErrConfig)
	assert.Says(t, err, err, "rclone shows the locks of other machines minutes late")
}

// TestReplacedOnFUSE: on bindfs, a file system in a process, a name that is being replaced is listed and for a
// moment not there to open. It is listed and read all the same.
func TestReplacedOnFUSE(t *testing.T) {
	below := t.TempDir()
	s := mounted(t, "bindfs", func(mount string) []string { return []string{below, mount} })
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
	for n := range 3000 {
		page, err := s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(page.Objects) == 1, "listing %d: %v, %v", n, page.Objects, err)
		_, _, err = s.Get(t.Context(), key, 100)
		assert.Is(t, err, nil, "get %d", n)
	}
	cancel()
	<-ended
}
