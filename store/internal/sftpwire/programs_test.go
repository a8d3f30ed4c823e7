//go:build programs && linux

package sftpwire

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/server"
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
	assert.Says(t, err, ErrLost, `text instead of sftp: "This account is currently not available."`)
}

// TestProFTPD: the contract holds with ProFTPD's mod_sftp, over ssh.
func TestProFTPD(t *testing.T) { contract(t, proftpd(t), t.TempDir()) }

// proftpd returns a client of a ProFTPD that runs as this user.
func proftpd(t *testing.T) *Client {
	t.Helper()
	dir, port := t.TempDir(), server.Port(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "user"} {
		assert.Output(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in(key)))
	}
	public := assert.Output(t, exec.Command("ssh-keygen", "-e", "-f", in("user.pub")))
	assert.OK(t, os.WriteFile(in("authorized"), []byte(public), 0o600))
	me, err := user.Current()
	assert.OK(t, err)
	group, err := user.LookupGroupId(me.Gid)
	assert.OK(t, err)
	passwd := fmt.Sprintf("%s:x:%s:%s::%s:/bin/sh\n", me.Username, me.Uid, me.Gid, dir)
	assert.OK(t, os.WriteFile(in("passwd"), []byte(passwd), 0o600))
	config := fmt.Sprintf(`LoadModule mod_sftp.c
ServerType standalone
ServerName test
DefaultAddress 127.0.0.1
Port %d
User %s
Group %s
RootLogin on
RequireValidShell off
UseFtpUsers off
AuthOrder mod_auth_file.c
AuthUserFile %s
PidFile %s
ScoreboardFile %s
DelayEngine off
WtmpLog off
TransferLog none
SystemLog %s
SFTPEngine on
SFTPHostKey %s
SFTPAuthMethods publickey
SFTPAuthorizedUserKeys file:%s
AllowOverwrite on
AllowStoreRestart on
`, port, me.Username, group.Name, in("passwd"), in("pid"), in("scoreboard"), in("log"), in("host"), in("authorized"))
	assert.OK(t, os.WriteFile(in("conf"), []byte(config), 0o600))
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p, err := server.Start(exec.Command("proftpd", "-n", "-q", "-c", in("conf")), func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	assert.OK(t, err)
	t.Cleanup(func() { p.End(os.Interrupt) })
	return started(t, "ssh", "-F", "none", "-i", in("user"), "-p", strconv.Itoa(port), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
		"-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-s", me.Username+"@127.0.0.1", "sftp")
}
