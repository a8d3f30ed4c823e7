package dir

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

var _ store.Watcher = (*Store)(nil)

// Watch makes the kernel report the files that are removed from the folder of the prefix, and from the folders under
// the prefix in it. If the prefix is the key of an object, the kernel reports changes of that object alone. Otherwise each
// of a hundred waiters would be woken by each file that another one creates or removes. Watch returns
// errors.ErrUnsupported unless the file system is known to be local, because the kernel doesn't see removals by other
// machines.
//
// Only Linux can do that. BSD and macOS report a removal only to a process that keeps the file open.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	err := ctx.Err()
	if !s.local {
		err = cmp.Or(err, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, failed("watch", prefix, err)
	}
	hints, err := s.watch(ctx, prefix)
	return hints, failed("watch", prefix, err)
}

// watch starts the watcher. It keeps no file of the repository open, so that a disk can be unmounted.
func (s *Store) watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	dir, base := files.Split(prefix)
	w := watch{top: filepath.Join(s.path, filepath.FromSlash(dir)), base: base, hints: make(chan struct{}, 1)}
	var err error
	if w.Watcher, err = fsnotify.NewWatcher(); err != nil {
		return nil, err // this user might have too many watchers
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
	top   string // the folder of the prefix
	base  string // the rest of the prefix: the names of its objects in top begin with it
	file  string // the path of the object whose key is the prefix, or "" if there was none
	hints chan struct{}
}

func (w *watch) begin() error {
	file := filepath.Join(w.top, w.base)
	if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() && w.Add(file) == nil {
		w.file = file
		return nil
	}
	if err := w.Add(w.top); err != nil {
		return err
	}
	root, err := os.OpenRoot(w.top)
	if err != nil {
		return err
	}
	top := &directory{root, w.top}
	defer top.Close()
	for name, err := range top.names() {
		if err != nil {
			return err
		}
		w.enter(name)
	}
	return nil
}

// enter watches a folder under the prefix. It ignores other names. If it fails, removals from the folder send no hint.
// It fails if the folder is gone, or if this user has too many watches.
func (w *watch) enter(name string) {
	if !strings.HasPrefix(name, w.base) || files.IsTemp(name) {
		return
	}
	path := filepath.Join(w.top, name)
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		_ = w.Add(path)
	}
}

func (w *watch) run(ctx context.Context) {
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Errors:
			w.hint() // the kernel has dropped events
		case e, ok := <-w.Events:
			if !ok {
				return // both channels are closed
			}
			w.note(e)
		}
	}
}

// note sends a hint if an event is a removal, and watches a new folder. A file that is moved away counts as removed.
func (w *watch) note(e fsnotify.Event) {
	if w.file != "" {
		w.noteFile(e)
		return
	}
	parent, name := filepath.Split(e.Name)
	top := filepath.Clean(parent) == w.top
	switch {
	case files.IsTemp(name), top && !strings.HasPrefix(name, w.base):
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		w.hint()
	case top && e.Has(fsnotify.Create):
		w.enter(name)
	}
}

// noteFile sends a hint if the watched file was removed or replaced. The kernel reports a removal as a change of the
// number of links, too. That comes at once, even if another process still has the file open. A file that has replaced it,
// for example at a refresh, is watched before the hint, so that no later removal is missed. If there is none, the folder
// is watched, because another process can create the object again.
func (w *watch) noteFile(e fsnotify.Event) {
	switch {
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		if w.Add(w.file) != nil {
			w.file = ""
			_ = w.Add(w.top) // if it fails, no more hints come
		}
		w.hint()
	case e.Has(fsnotify.Chmod):
		w.hint()
	}
}

func (w *watch) hint() {
	select {
	case w.hints <- struct{}{}:
	default: // the channel already has a hint
	}
}
