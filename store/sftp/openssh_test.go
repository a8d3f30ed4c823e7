//go:build programs && unix

package sftp

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

const openSSH = "/usr/lib/openssh/sftp-server"

// ofOpenSSH is OpenSSH's server, without ssh. The command before it is a greeting.
var ofOpenSSH server = func(ctx context.Context, root string) (*conn, error) {
	return connect(ctx, target{command: []string{"sh", "-c", "echo 'Permission denied to strangers' >&2; exec " + openSSH}, root: root})
}

// TestContractOfOpenSSH: the contract holds with OpenSSH's server.
func TestContractOfOpenSSH(t *testing.T) { contract(t, ofOpenSSH) }

// injected is OpenSSH's server, in which system calls fail, as strace's -e inject has it.
func injected(inject string) server {
	return func(ctx context.Context, root string) (*conn, error) {
		calls, _, _ := strings.Cut(inject, ":")
		return connect(ctx, target{command: []string{"strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=" + calls, "-e", "inject=" + inject, openSSH}, root: root})
	}
}

// TestRealFlushRefused: where the file system refuses each fsync, OpenSSH's server stores objects all the same. If it
// refuses one fsync only, the put fails, and names it.
func TestRealFlushRefused(t *testing.T) {
	for _, errno := range []string{"EINVAL", "EOPNOTSUPP", "EIO", "ENOSYS"} {
		root := t.TempDir()
		s := injected("fsync:error="+errno).on(t, root)
		put(t, s, "index/lock.shared/a", "index/lock.exclusive")
		has(t, root, "index/", "index/lock.exclusive", "index/lock.shared/", "index/lock.shared/a")
		d, err := s.Describe(t.Context())
		assert.OK(t, err)
		assert.That(t, strings.Contains(d.Server, "refuses to flush a file (fsync)"), "%s: %q", errno, d.Server)
	}
	root := t.TempDir()
	_, err := injected("fsync:error=EIO:when=1").on(t, root).Put(t.Context(), "index/a", []byte("1"), store.PutOptions{})
	assert.Says(t, err, sftpwire.Failure, "flushing a file to the server's disk (fsync)")
	has(t, root, "index/")
}

// TestRealLinksRefused: OpenSSH's server on a file system without hard links is known to make none since the first put
// that needs one, which has written nothing.
func TestRealLinksRefused(t *testing.T) {
	linkless := func(s *Store) {
		t.Helper()
		assert.Is(t, assert.Err(s.Put(t.Context(), "index/a", nil, store.PutOptions{IfAbsent: true})), store.ErrConditionUnsupported)
		assert.Equal(t, s.Properties().IfAbsent, store.Unsupported)
		assert.Is(t, assert.Err(s.Put(t.Context(), "index/a", nil, store.PutOptions{IfAbsent: true})), store.ErrConditionUnsent)
		put(t, s, "index/a")
	}
	for _, errno := range []string{"EPERM", "EMLINK", "EINVAL", "ENOSYS", "EOPNOTSUPP", "EXDEV"} {
		linkless(injected("link,linkat:error="+errno).on(t, t.TempDir()))
	}
	assert.Equal(t, ofOpenSSH.on(t, t.TempDir()).Properties().IfAbsent, store.Kept)

	assert.Need(t, os.Getuid() == 0, "this test must be run as root: it mounts exFAT")
	image, mount := filepath.Join(t.TempDir(), "image"), t.TempDir()
	assert.OK(t, os.WriteFile(image, nil, 0o600))
	assert.OK(t, os.Truncate(image, 20<<20))
	assert.Output(t, exec.Command("mkfs.exfat", image))
	device := strings.TrimSpace(assert.Output(t, exec.Command("losetup", "--find", "--show", image)))
	t.Cleanup(func() { assert.Output(t, exec.Command("losetup", "--detach", device)) })
	assert.Output(t, exec.Command("mount.exfat-fuse", device, mount))
	t.Cleanup(func() { assert.Output(t, exec.Command("umount", "--lazy", mount)) })
	linkless(ofOpenSSH.on(t, mount))
}

// TestGreeting: what the command says before SFTP begins is no reason for the connection's end.
func TestGreeting(t *testing.T) {
	s := ofOpenSSH.on(t, t.TempDir())
	put(t, s, "k")
	p := s.dialed.conn.pipe.ReadWriteCloser.(*process)
	assert.OK(t, unix.Kill(p.Pid, unix.SIGKILL))
	<-p.ended
	c := s.dialed.conn
	<-c.Done()
	assert.Is(t, c.ended(t.Context(), c.Err()), store.ErrUnreachable)
	put(t, s, "k")
}

// ofNobody is OpenSSH's server as the user nobody. Only root can start it.
var ofNobody server = func(ctx context.Context, root string) (*conn, error) {
	return connect(ctx, target{command: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", openSSH}, root: root})
}

// TestReadableOnly: OpenSSH's server shows a directory that it can read but not enter as empty. A listing must
// not.
func TestReadableOnly(t *testing.T) {
	root := t.TempDir()
	for dir := root; dir != "/tmp"; dir = filepath.Dir(dir) {
		assert.OK(t, os.Chmod(dir, 0o755))
	}
	put(t, ofOpenSSH.on(t, root), "index/lock.shared/x", "index/lock.exclusive")
	nobody := ofNobody
	if os.Geteuid() != 0 {
		nobody = ofOpenSSH
	}
	for _, dir := range []string{"index/lock.shared", "index"} {
		assert.OK(t, os.Chmod(filepath.Join(root, dir), 0o444))
		s := nobody.on(t, root)
		_, err := s.List(t.Context(), "index/lock.", "")
		assert.Says(t, err, store.ErrPermission, dir)
		assert.OK(t, os.Chmod(filepath.Join(root, dir), 0o755))
	}
}

// TestRealSkippedDirectory: through OpenSSH's server a listing shows a directory that this user can't open or enter as one
// object, if the caller ignores all keys below it. A file that it can't read is listed.
func TestRealSkippedDirectory(t *testing.T) {
	assert.Need(t, os.Geteuid() == 0, "this test must be run as root: its server runs as another user")
	root := t.TempDir()
	for dir := root; dir != "/tmp"; dir = filepath.Dir(dir) {
		assert.OK(t, os.Chmod(dir, 0o755))
	}
	put(t, ofOpenSSH.on(t, root), "index/lock.shared/lost+found/x", "index/lock.shared/Thumbs.db", "index/lock.shared/x")
	assert.OK(t, os.Chmod(filepath.Join(root, "index/lock.shared/Thumbs.db"), 0))
	lost := "index/lock.shared/lost+found/"
	for _, mode := range []os.FileMode{0, 0o700, 0o711, 0o744} {
		assert.OK(t, os.Chmod(filepath.Join(root, lost), mode))
		s := ofNobody.on(t, root)
		for range 2 {
			page, err := s.List(store.Skipping(t.Context(), func(folder string) bool { return folder == lost }), "index/lock.", "")
			assert.OK(t, err)
			assert.Equal(t, keys(page), []string{"index/lock.shared/Thumbs.db", lost, "index/lock.shared/x"}, "mode %o", mode)
			_, err = s.List(t.Context(), "index/lock.", "")
			assert.Says(t, err, store.ErrPermission, "lost+found")
		}
	}
}
