package dir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// TestWatchIsLocal: on a file system that might not be this machine's own there are no hints.
func TestWatchIsLocal(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.path, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, local := range []bool{true, false} {
		s.local = local
		if _, err := s.Watch(t.Context(), "index/lock."); errors.Is(err, errors.ErrUnsupported) == local {
			t.Errorf("local %t: %v", local, err)
		}
	}
}

// TestWatchHeedsRemovals: an event is a hint if a file that can be an object under the prefix is
// removed or moved away. A holder's refresh, which renames a temporary file, is none.
func TestWatchHeedsRemovals(t *testing.T) {
	top := filepath.Join(t.TempDir(), "index")
	w := watch{top: top, base: "lock.", hints: make(chan struct{}, 1)}
	for _, c := range []struct {
		name string
		op   fsnotify.Op
		hint bool
	}{
		{"lock.exclusive", fsnotify.Remove, true},
		{"lock.exclusive", fsnotify.Rename, true},
		{"lock.exclusive", fsnotify.Create, false},
		{"lock.exclusive", fsnotify.Write | fsnotify.Chmod, false},
		{"lock.shared/x", fsnotify.Remove, true},
		{"lock.shared/x", fsnotify.Create, false},
		{"lock.shared/.repolock-X.tmp", fsnotify.Rename, false},
		{".repolock-X.tmp", fsnotify.Remove, false},
		{"packs", fsnotify.Remove, false},
		{"lock-fence", fsnotify.Remove, false},
	} {
		w.note(fsnotify.Event{Name: filepath.Join(top, filepath.FromSlash(c.name)), Op: c.op})
		select {
		case <-w.hints:
			if !c.hint {
				t.Errorf("%s of %s is a hint", c.op, c.name)
			}
		default:
			if c.hint {
				t.Errorf("%s of %s is no hint", c.op, c.name)
			}
		}
	}
}
