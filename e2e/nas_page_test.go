//go:build linux && programs

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

// master lets the scripts of a page call the server nas, by one connection, and returns the script for that. ssh reads the
// test's configuration in place of the user's, and a socket's path must be short.
func (p *page) master(server *sshd.Server, script string) string {
	p.t.Helper()
	sockets, err := os.MkdirTemp("/tmp", "ssh-")
	assert.OK(p.t, err)
	p.t.Cleanup(func() {
		_ = exec.Command(server.Bin()+"/ssh", "-O", "exit", "nas").Run()
		os.RemoveAll(sockets)
	})
	server.Alias(p.t, "nas")
	assert.OK(p.t, os.Symlink(server.Bin(), p.path("bin")))
	script = strings.Replace(script, `"$HOME/.ssh/config"`, server.File("ssh_config"), 1)
	return strings.Replace(script, "~/.ssh/%C", sockets+"/%C", 1)
}

// TestSFTPPage: repolock uses the connection that the page opens.
func TestSFTPPage(t *testing.T) {
	p := newPage(t, "sftp.md")
	p.mkdir("backups")
	server := sshd.Apart(t, "Subsystem sftp /usr/lib/openssh/sftp-server -d "+p.dir)
	p.sh(p.master(server, p.Script()))
	out, err := exec.Command(server.Bin()+"/ssh", "-O", "check", "nas").CombinedOutput()
	assert.That(t, err == nil, "no connection is open: %v: %s", err, out)
	assert.That(t, p.exists("backups/index/lock.shared"), "the lock wasn't there")
}

func TestNASPage(t *testing.T) {
	p := newPage(t, "nas.md")
	server := sshd.Apart(t, "Subsystem sftp /usr/lib/openssh/sftp-server -d "+p.dir)
	script := p.master(server, strings.Replace(p.Script(), "ssh nas mkdir -p backups", "mkdir -p backups", 1)) // its home directory is another one
	p.at = "-- restic"
	p.contains(p.run(script), "this store is fit to hold locks", "no locks", "snapshot", "restoring")
	p.unlocked()
	assert.That(t, p.exists("backups/index/lock.shared"), "restic and repolock use different places")
}
