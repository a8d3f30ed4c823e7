//go:build linux && programs

package dir

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestReplacedOnFUSE: on bindfs, a file system in a process, a name that is being replaced is listed and for a
// moment not there to open. It is listed and read all the same.
func TestReplacedOnFUSE(t *testing.T) {
	below, mount := t.TempDir(), t.TempDir()
	out, err := exec.Command("bindfs", below, mount).CombinedOutput()
	if err != nil {
		t.Fatalf("bindfs: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("fusermount3", "-u", mount).Run() })
	s, err := Open(t.Context(), mount, Options{})
	assert.OK(t, err)
	const key = "index/lock.shared/a"
	put := func(n int) {
		assert.Is(t, assert.Err(s.Put(t.Context(), key, fmt.Appendln(nil, n), store.PutOptions{})), nil, "put %d", n)
	}
	put(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 1; ctx.Err() == nil; n++ {
			put(n)
		}
	}()
	for n := range 3000 {
		page, err := s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(page.Objects) == 1, "listing %d: %v, %v", n, page.Objects, err)
		_, _, err = s.Get(t.Context(), key, 100)
		assert.Is(t, err, nil, "get %d", n)
	}
	cancel()
	<-ended
}
