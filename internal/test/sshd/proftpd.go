package sshd

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/server"
)

// ProFTPD starts a ProFTPD with mod_sftp, which runs as this user, and puts an ssh into PATH that knows it, for
// the rest of the test. It needs Debian's proftpd-core and proftpd-mod-crypto.
func ProFTPD(t *testing.T) *Server {
	t.Helper()
	s := keyed(t)
	s.Port = server.Port(t)
	t.Setenv("PATH", s.Bin()+":"+os.Getenv("PATH"))
	public := assert.Output(t, exec.Command("ssh-keygen", "-e", "-f", s.File("user.pub")))
	s.Write(t, "authorized", public)
	me, err := user.Current()
	assert.OK(t, err)
	group, err := user.LookupGroupId(me.Gid)
	assert.OK(t, err)
	s.Write(t, "passwd", fmt.Sprintf("%s:x:%s:%s::%s:/bin/sh\n", me.Username, me.Uid, me.Gid, s.dir))
	s.Write(t, "proftpd_config", fmt.Sprintf(`LoadModule mod_sftp.c
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
`, s.Port, me.Username, group.Name, s.File("passwd"), s.File("pid"), s.File("scoreboard"), s.File("log"), s.File("host"), s.File("authorized")))
	s.start(t, exec.Command("proftpd", "-n", "-q", "-c", s.File("proftpd_config")))
	t.Cleanup(func() { s.End(os.Interrupt) })
	return s
}
