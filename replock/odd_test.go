package replock

import (
	"context"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// TestOddObjects: an object in the place of a lock, or of the locks' folder, that is neither,
// is an unreadable lock. It keeps all acquirers out until break-lock removes it.
func TestOddObjects(t *testing.T) {
	for _, key := range []string{
		"index/lock.shared", "index/lock.intent", "index/lock.exclusive/x", "index/lock.exclusive/x/y",
	} {
		eachMode(t, func(t *testing.T, w *world, mode Mode) {
			w.put(key, []byte("anything"))
			w.put("index/lock.exclusive.bak", []byte("not a lock"))
			w.isOdd(t, w.machine(), mode, key)
			if keys := w.keys(); len(keys) != 1 || keys[0] != "index/lock.exclusive.bak" {
				t.Errorf("left: %v", keys)
			}
		})
	}
}

// isOdd checks that one unreadable lock keeps acquirers out, and then breaks it.
func (w *world) isOdd(t *testing.T, m *machine, mode Mode, key string) {
	t.Helper()
	if infos, err := m.Status(t.Context()); err != nil || len(infos) != 1 || infos[0].Verdict != Unreadable || infos[0].Key() != key {
		t.Errorf("%s: status: %+v, %v", key, infos, err)
	}
	k, err := m.acquire(t.Context(), mode, "x")
	if held := mustHeld(t, k, err); len(held.Holders) != 1 || held.Holders[0].Verdict != Unreadable {
		t.Errorf("%s: held by %+v", key, held.Holders)
	}
	if n := m.saw(EventReleaseFailed); n > 0 {
		t.Errorf("%s: %d objects are reported as left", key, n)
	}
	if broken, err := m.Break(t.Context(), BreakOptions{}); err != nil || len(broken) != 1 {
		t.Errorf("%s: broken: %+v, %v", key, broken, err)
	}
	k, err = m.acquire(t.Context(), mode, "x")
	mustLock(t, k, err).Release(t.Context())
}

// oddFolders is a store with an empty folder, as a directory can have.
type oddFolders struct {
	store.Store
	folders []string
}

func (s *oddFolders) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	page.Folders = s.folders
	return page, err
}

func (s *oddFolders) Delete(ctx context.Context, key string) error {
	for i, f := range s.folders {
		if f == key {
			s.folders = append(s.folders[:i], s.folders[i+1:]...)
			return nil
		}
	}
	return s.Store.Delete(ctx, key)
}

// Put fails under the name of a folder.
func (s *oddFolders) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	for _, f := range s.folders {
		if f == key+"/" {
			return store.Object{}, store.ErrIrregular
		}
	}
	return s.Store.Put(ctx, key, body, opts)
}

// TestOddFolders: an empty folder in the place of lock.exclusive is an unreadable lock, too.
// The folders of the flags can be empty.
func TestOddFolders(t *testing.T) {
	for _, key := range []string{"index/lock.exclusive/", "index/lock.exclusive/x/"} {
		eachMode(t, func(t *testing.T, w *world, mode Mode) {
			m := w.machine()
			m.hooks.Store = &oddFolders{m.hooks.Store, []string{"index/lock.bak/", key, "index/lock.intent/", "index/lock.shared/", "index/lock.shared/laptop/"}}
			w.isOdd(t, m, mode, key)
			w.empty()
		})
	}
}

// TestTempsOfOthersStay: another program's file is empty at first, if the program writes it
// and then renames it. It isn't swept before it is a day old.
func TestTempsOfOthersStay(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		m := w.machine()
		prune := func() []string {
			k, err := m.Exclusive(t.Context(), "prune")
			mustLock(t, k, err).Release(t.Context())
			return w.keys()
		}
		w.put("index/lock.shared/emptied", nil)
		w.put("index/lock.shared/x.tmp", nil)
		w.put("index/lock.exclusive", nil)
		if keys := prune(); len(keys) != 1 || keys[0] != "index/lock.shared/x.tmp" {
			t.Errorf("left: %v", keys)
		}
		time.Sleep(23 * time.Hour)
		if broken, err := m.Break(t.Context(), BreakOptions{Stale: true}); err != nil || len(broken) > 0 {
			t.Errorf("broken as stale: %+v, %v", broken, err)
		}
		if keys := prune(); len(keys) != 1 {
			t.Errorf("left after 23 hours: %v", keys)
		}
		time.Sleep(2 * time.Hour)
		if keys := prune(); len(keys) != 0 {
			t.Errorf("left after 25 hours: %v", keys)
		}
	})
}
