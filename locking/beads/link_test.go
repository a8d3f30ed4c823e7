package beads

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestLinkReplacesNothing: a lock that another tool creates after TryLock has looked stays, and
// TryLock leaves no file beside it.
func TestLinkReplacesNothing(t *testing.T) {
	b, _ := seen(t)
	if mine, err := b.link(); mine != nil || err != nil {
		t.Errorf("%+v, %v", mine, err)
	}
	if body, _ := os.ReadFile(b.path); string(body) != "old" || len(files(t, b)) != 1 {
		t.Errorf("the lock is %q now, beside %v", body, files(t, b))
	}
}

// TestConformanceWithoutFlock: where the directory has no flock, the link alone excludes.
func TestConformanceWithoutFlock(t *testing.T) {
	noFlock(t)
	dir := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := New(dir, Options{Clock: new(Leap)})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Keys: []string{Key}, TTL: time.Millisecond, Rounds: 300,
	})
}

func noFlock(t *testing.T) {
	real := tryFlock
	tryFlock = func(*os.File) (bool, error) { return false, errors.ErrUnsupported }
	t.Cleanup(func() { tryFlock = real })
}
