package freeport

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// TestFree: no port is returned twice, although no process listens on it.
func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 2000 {
		port, err := Free()
		assert.OK(t, err)
		assert.That(t, port >= 20000 && port < 30000 && !seen[port], "%d, and before it %v", port, seen)
		seen[port] = true
	}
}

// TestListensAgain: a port is free as soon as its listener is closed, although this process
// starts others all the time.
func TestListensAgain(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				assert.Is(t, exec.Command("true").Run(), nil)
			}
		})
	}
	defer starts.Wait()
	defer stop()
	for range rounds.Fewer(300, 60) {
		port, err := Free()
		assert.OK(t, err)
		for range 10 {
			l, err := Listen(fmt.Sprintf("127.0.0.1:%d", port))
			assert.OK(t, err)
			assert.OK(t, l.Close())
		}
	}
}
