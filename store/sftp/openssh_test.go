//go:build programs && unix

package sftp

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

const openSSH = "/usr/lib/openssh/sftp-server"

// ofOpenSSH is OpenSSH's server, without ssh. The command before it is a greeting.
var ofOpenSSH server = func(ctx context.Context, root string) (*conn, error) {
	return connect(ctx, target{command: []string{"sh", "-c", "echo 'Permission denied to strangers' >&2; exec " + openSSH}, root: root})
}

// TestContractOfOpenSSH: the contract holds with OpenSSH's server.
func TestContractOfOpenSSH(t *testing.T) { contract(t, ofOpenSSH) }

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

// TestReadableOnly: OpenSSH's server shows a directory that it can read but not enter as empty. A listing must
// not.
func TestReadableOnly(t *testing.T) {
	root := t.TempDir()
	for dir := root; dir != "/tmp"; dir = filepath.Dir(dir) {
		assert.OK(t, os.Chmod(dir, 0o755))
	}
	put(t, ofOpenSSH.on(t, root), "index/lock.shared/x", "index/lock.exclusive")
	var nobody server = func(ctx context.Context, root string) (*conn, error) {
		return connect(ctx, target{command: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", openSSH}, root: root})
	}
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
