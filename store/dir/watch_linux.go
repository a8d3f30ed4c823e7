package dir

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watch begins to watch. It opens no file of the repository, so that a disk can be unmounted.
func (s *Store) watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	dir, base := split(prefix)
	w := watch{top: filepath.Join(s.path, filepath.FromSlash(dir)), base: base, hints: make(chan struct{}, 1)}
	var err error
	if w.Watcher, err = fsnotify.NewWatcher(); err != nil {
		return nil, err // the user has too many already
	}
	if err := w.begin(); err != nil {
		w.Close()
		return nil, cant("watch", w.top, err)
	}
	go w.run(ctx)
	return w.hints, nil
}

// watch is one Watch under way.
type watch struct {
	*fsnotify.Watcher
	top, base string // of the keys: their folder, and how their names begin in it
	hints     chan struct{}
}

func (w *watch) begin() error {
	if err := w.Add(w.top); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.top)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			w.enter(e.Name())
		}
	}
	return nil
}

// enter watches a folder that keys can be in. It can be gone again, or the user can have too many
// watches: then what is removed from it gives no hint.
func (w *watch) enter(name string) {
	if strings.HasPrefix(name, w.base) && !isTemp(name) {
		_ = w.Add(filepath.Join(w.top, name))
	}
}

func (w *watch) run(ctx context.Context) {
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			w.hint() // there were more events than the kernel keeps
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			w.note(e)
		}
	}
}

// note follows an event. A file that is moved away counts as removed.
func (w *watch) note(e fsnotify.Event) {
	parent, name := filepath.Split(e.Name)
	top := filepath.Clean(parent) == w.top
	switch {
	case isTemp(name), top && !strings.HasPrefix(name, w.base):
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		w.hint()
	case top && e.Has(fsnotify.Create):
		if info, err := os.Lstat(e.Name); err == nil && info.IsDir() {
			w.enter(name)
		}
	}
}

func (w *watch) hint() {
	select {
	case w.hints <- struct{}{}:
	default: // it has one already
	}
}
