//go:build programs && linux

package sftpwire

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

// started returns a client of a program.
func started(t *testing.T, program string, args ...string) *Client {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	assert.OK(t, err)
	in, err := cmd.StdinPipe()
	assert.OK(t, err)
	assert.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c, err := New(t.Context(), child{out, in})
	assert.OK(t, err)
	t.Cleanup(c.Close)
	return c
}

const sftpServer = "/usr/lib/openssh/sftp-server"

// TestOpenSSH: the contract holds with OpenSSH's server.
func TestOpenSSH(t *testing.T) { contract(t, started(t, sftpServer), t.TempDir()) }

// TestReadOnly: a server that permits no changes says so.
func TestReadOnly(t *testing.T) {
	r := remote{t, started(t, sftpServer, "-R"), t.TempDir()}
	r.do(Lstat(r.dir))
	r.refused(Open(r.dir+"/a", FlagWrite|FlagCreate|FlagExcl, 0o600), PermissionDenied)
	r.refused(Mkdir(r.dir+"/d", 0o700), PermissionDenied)
}

// TestShell: the text of a program that has ended at once is found, although it never read INIT.
func TestShell(t *testing.T) {
	_, err := New(t.Context(), func() child {
		cmd := exec.Command("sh", "-c", "echo This account is currently not available.; exit 1")
		out, err := cmd.StdoutPipe()
		assert.OK(t, err)
		in, err := cmd.StdinPipe()
		assert.OK(t, err)
		assert.OK(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Wait() })
		return child{out, in}
	}())
	assert.Says(t, err, ErrText, `text instead of sftp: "This account is currently not available."`)
}

// TestProFTPD: the contract holds with ProFTPD's mod_sftp, over ssh.
func TestProFTPD(t *testing.T) {
	s := sshd.ProFTPD(t)
	contract(t, started(t, "ssh", "-p", strconv.Itoa(s.Port), "-o", "BatchMode=yes", "-s", "127.0.0.1", "sftp"), t.TempDir())
}
