//go:build linux && programs

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

func TestNASPage(t *testing.T) {
	p := newPage(t, "nas.md")
	server := sshd.Apart(t, "Subsystem sftp /usr/lib/openssh/sftp-server -d "+p.dir)
	server.Alias(t, "nas")
	assert.OK(t, os.Symlink(server.Bin(), p.path("bin")))
	script := strings.Replace(p.Script(), "ssh nas mkdir -p backups", "mkdir -p backups", 1) // its home directory is another one
	p.at = "-- restic"
	p.contains(p.run(script), "this store is fit to hold locks", "no locks", "snapshot", "restoring")
	p.unlocked()
	assert.That(t, p.exists("backups/index/lock.shared"), "restic and repolock use different places")
}
