//go:build linux && programs

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

func TestRealOverSSH(t *testing.T) {
	s, server := newSite(t), sshd.Apart(t)
	second := server.Another(t, "Subsystem sftp internal-sftp")
	s.real(server.URL(s.repo), "STORE2="+second.URL(s.repo), "PATH="+server.Bin()+":"+os.Getenv("PATH"))
	left, err := filepath.Glob(s.repo + "/*")
	assert.That(t, err == nil && len(left) == 0, "%v %q", err, left)
}
