package sftp

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	pkgsftp "github.com/pkg/sftp"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

// server starts an SFTP server, and returns our end of its connection.
type server func(ctx context.Context, root string) (*conn, error)

// inGo is the server of github.com/pkg/sftp, in this process. It processes reads and writes beside other
// requests.
var inGo server = func(ctx context.Context, root string) (*conn, error) {
	ours, theirs := net.Pipe()
	s, err := pkgsftp.NewServer(theirs)
	if err != nil {
		return nil, err
	}
	go func() { _ = s.Serve(); theirs.Close() }()
	return start(ctx, ours, target{root: root}, func(context.Context) error { return nil })
}

// on returns a store on a server of its own process.
func (s server) on(t *testing.T, root string) *Store {
	st := opened(func(ctx context.Context) (*conn, error) { return s(ctx, root) })
	t.Cleanup(func() { assert.OK(t, st.Close()) })
	return st
}

func TestContract(t *testing.T) { contract(t, inGo) }

func contract(t *testing.T, s server) {
	roots := map[store.Store]string{}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			root, err := os.MkdirTemp("", "contract") // in mode 0700
			assert.OK(t, err)
			t.Cleanup(func() { // the server can still be carrying out a request of a connection that was closed
				for os.RemoveAll(root) != nil && !t.Failed() {
					runtime.Gosched()
				}
			})
			st := s.on(t, root)
			roots[st] = root
			return st
		},
		Reopen:    func(t *testing.T, st store.Store) store.Store { return s.on(t, roots[st]) },
		Precision: time.Second,
	})
}
