//go:build programs

package sftp

import (
	"net/url"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

// through opens a store of a directory of this machine, through ssh and a server.
func through(t *testing.T, raw string) *Store {
	t.Helper()
	u, err := url.Parse(raw)
	assert.OK(t, err)
	s, err := Open(t.Context(), u)
	assert.OK(t, err)
	t.Cleanup(func() { assert.OK(t, s.Close()) })
	return s
}

// TestContractOfSSHD: the contract holds through ssh and two servers on one machine.
func TestContractOfSSHD(t *testing.T) {
	server := sshd.Start(t)
	contractThrough(t, server, server.Another(t, "Subsystem sftp internal-sftp"))
}

// TestContractOfProFTPD: the contract holds through ssh and ProFTPD.
func TestContractOfProFTPD(t *testing.T) {
	server := sshd.ProFTPD(t)
	contractThrough(t, server, server)
}

// contractThrough runs the contract with two handles, each through a server.
func contractThrough(t *testing.T, server, second *sshd.Server) {
	roots := map[store.Store]string{}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			root := t.TempDir()
			s := through(t, server.URL(root))
			roots[s] = root
			return s
		},
		Reopen:    func(t *testing.T, s store.Store) store.Store { return through(t, second.URL(roots[s])) },
		Precision: time.Second,
		Light:     true,
	})
}
