package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
)

const pageSize = 1000

// tick is longer than the lag of the kernel's clock for file times behind the clock that
// programs read: the former moves with the timer interrupt, at least every 10 ms.
const tick = 20 * time.Millisecond

// List reads the directories that the prefix can be in, and the files of the
// page. The cursor is the last key of the page before.
func (s *Store) List(ctx context.Context, prefix, cursor string) (page store.Page, err error) {
	defer func() { err = failed("list", prefix, err) }()
	if err := ctx.Err(); err != nil {
		return page, err
	}
	root, err := s.open()
	if err != nil {
		return page, err
	}
	defer root.Close()
	l := listing{ctx: ctx, scan: s.scan, scans: s.scans.of(prefix, cursor), cached: !s.local, prefix: prefix, cursor: cursor}
	if err := cmp.Or(l.read(root), ctx.Err()); err != nil {
		return page, err
	}
	s.scans.keep(l.scans, l.page.Next)
	if s.local {
		// A file that is written from now on may be stamped a tick in the past,
		// and this must not be later.
		l.page.Now = s.now().Round(0).Add(-tick)
	}
	return l.page, nil
}

// listing is one List under way.
type listing struct {
	ctx            context.Context
	scan           func(ctx context.Context, d *directory, wanted func(name string) bool) ([]string, error)
	scans          *scans
	cached         bool // the file system might show a directory as it was
	prefix, cursor string
	page           store.Page
}

func (l *listing) read(root *directory) error {
	dir, _ := split(l.prefix)
	if dir != "" && store.CheckKey(dir) != nil {
		return nil // no key begins like that
	}
	at := ""
	if dir != "" {
		at = dir + "/"
	}
	_, err := l.enter(root, dir, at)
	return err
}

// walk adds the entries of a directory, whose keys begin with at, until the page is
// full. The names of directories end with a slash, so that their order is that
// of the keys in them: "a-b" < "a/b" < "a0".
func (l *listing) walk(d *directory, at string) (full bool, err error) {
	names, ok := l.scans.names[at]
	if !ok {
		if l.cached {
			d.reread()
		}
		if names, err = settled(func() ([]string, error) {
			return l.scan(l.ctx, d, func(name string) bool { return l.wants(at + name) })
		}); err != nil {
			return false, err
		}
		l.scans.names[at] = names
	}
	if len(names) == 0 && at != "" && strings.HasPrefix(at, l.prefix) {
		l.page.Folders = append(l.page.Folders, at)
	}
	for _, name := range names {
		if !l.ahead(at + name) {
			continue
		}
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			full, err = l.enter(d, dir, at+name)
		} else {
			full, err = l.add(d, name, at+name)
		}
		if err == nil {
			err = l.ctx.Err()
		}
		if full || err != nil {
			return full, err
		}
	}
	return false, nil
}

// wants reports whether a key belongs in this listing, and of a directory, which ends with a
// slash, whether a key below it can.
func (l *listing) wants(key string) bool {
	return strings.HasPrefix(key, l.prefix) || strings.HasSuffix(key, "/") && strings.HasPrefix(l.prefix, key)
}

// ahead reports whether the key belongs on this page or a later one.
func (l *listing) ahead(key string) bool {
	return key > l.cursor || strings.HasSuffix(key, "/") && strings.HasPrefix(l.cursor, key)
}

func (l *listing) enter(parent *directory, name, at string) (full bool, err error) {
	d, err := l.open(parent, name)
	if absent(err) {
		return false, nil // nothing is there, or it was removed meanwhile, so it was empty
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	return l.walk(d, at)
}

// open opens a directory below another one. On a mount that caches names, one that another machine has made can
// seem to be missing, for as long as the mount was told to remember that. So there a directory is missing only if
// the listing of the one above it, read anew, doesn't show it either; and if it stays like that, that is no answer
// but an error.
func (l *listing) open(parent *directory, path string) (*directory, error) {
	for range maxLooks {
		d, err := openDir(parent, path)
		if !errors.Is(err, fs.ErrNotExist) || !l.cached {
			return d, err
		}
		listed, lerr := l.lists(parent, path)
		if lerr != nil || !listed {
			return nil, cmp.Or(lerr, err)
		}
		time.Sleep(time.Millisecond)
	}
	return nil, hidden(parent, path)
}

// hidden returns the error of a name that its directory lists, and that isn't there to be opened.
func hidden(d *directory, name string) error {
	return fmt.Errorf("%s is listed, and isn't there to be opened: if this mount remembers missing names, mount it with "+
		"negative_timeout=0 (FUSE) or lookupcache=none (NFS)", d.full(name))
}

// lists reports whether a directory's listing, read anew, shows a directory below it.
func (l *listing) lists(parent *directory, path string) (bool, error) {
	dir, name := split(path)
	d, err := openDir(parent, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.lists(parent, dir)
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	d.reread()
	names, err := settled(func() ([]string, error) {
		return l.scan(l.ctx, d, func(n string) bool { return n == name+"/" })
	})
	return len(names) > 0, err
}

func (l *listing) add(d *directory, name, key string) (full bool, err error) {
	if n := len(l.page.Objects); n == pageSize {
		l.page.Next = l.page.Objects[n-1].Key
		return true, nil
	}
	_, obj, err := inspect(d, name, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // deleted meanwhile
	case obj.ETag != "" && (errors.Is(err, errIrregular) || errors.Is(err, fs.ErrPermission)):
		// Shown all the same: it might be a lock.
	case err != nil:
		return false, err
	}
	obj.Key = key
	l.page.Objects = append(l.page.Objects, obj)
	return false, nil
}
