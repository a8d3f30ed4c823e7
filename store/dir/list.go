package dir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

const pageSize = 1000

// tick is longer than the lag of the kernel's clock for file times behind the clock that
// programs read: the former moves with the timer interrupt, at least every 10 ms.
const tick = 20 * time.Millisecond

// List reads the directories that the prefix can be in, and the files of the page. The cursor is the last
// key of the page before, a NUL, and the id of the listing. Any other cursor is the last key alone.
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
	l := listing{Store: s, ctx: ctx, prefix: prefix}
	l.cursor, l.scans = s.scansOf(prefix, cursor)
	if dir, _ := split(prefix); dir == "" || store.CheckKey(dir) == nil { // or no key begins like that
		err = l.enter(root, dir, "")
	}
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return page, err
	}
	page = l.page
	if page.Next != "" {
		page.Next += "\x00" + l.scans.id
		s.last.Store(l.scans)
	} else {
		s.last.CompareAndSwap(l.scans, nil)
	}
	if s.local {
		// A file that is written from now on may be stamped a tick in the past,
		// and this must not be later.
		page.Now = s.now().Round(0).Add(-tick)
	}
	return page, nil
}

// scans has the names that one listing has found in directories, so that its later pages needn't scan them
// again. Those needn't show a file that was put since, and read each file that they show. A page of any
// other listing must not use them: they lack the files that were put before that one began.
type scans struct {
	id, prefix string
	names      sync.Map // []string, by the prefix of the keys in the directory
}

// scansOf splits a cursor into a key and the scans of its listing, which are empty if another listing has
// returned a page since.
func (s *Store) scansOf(prefix, cursor string) (key string, of *scans) {
	key, id, _ := strings.Cut(cursor, "\x00")
	if last := s.last.Load(); last != nil && last.id == id && last.prefix == prefix {
		return key, last
	}
	return key, &scans{id: rand.Text(), prefix: prefix}
}

// listing is one List under way.
type listing struct {
	*Store
	ctx            context.Context
	scans          *scans
	prefix, cursor string
	page           store.Page // is full once it has Next
}

// enter walks through a directory below another one, whose keys begin with at. The directory can be missing.
func (l *listing) enter(parent *directory, path, at string) error {
	if path == "" {
		return l.walk(parent, at)
	}
	name, rest, _ := strings.Cut(path, "/")
	var d *directory
	err := l.find(l.ctx, parent, name, func() (err error) {
		d, err = enter(parent, name)
		return err
	})
	if absent(err) {
		return nil // nothing is there, or it was removed meanwhile, so it was empty
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return l.enter(d, rest, at+name+"/")
}

// walk adds the entries of a directory, whose keys begin with at, until the page is
// full. The names of directories end with a slash, so that their order is that
// of the keys in them: "a-b" < "a/b" < "a0".
func (l *listing) walk(d *directory, at string) error {
	names, err := l.namesIn(d, at)
	if err != nil {
		return err
	}
	if len(names) == 0 && at != "" && strings.HasPrefix(at, l.prefix) {
		l.page.Folders = append(l.page.Folders, at)
	}
	files := map[string]bool{}
	for _, name := range names {
		dir, folder := strings.CutSuffix(name, "/")
		switch {
		case !l.ahead(at + dir + "/"):
		case !folder:
			files[name], err = l.add(d, name, at+name)
		case !files[dir]:
			err = l.enter(d, dir, at)
		}
		if err = cmp.Or(err, l.ctx.Err()); err != nil || l.page.Next != "" {
			return err
		}
	}
	return nil
}

// namesIn returns the names in a directory that can be in this listing.
func (l *listing) namesIn(d *directory, at string) ([]string, error) {
	if names, ok := l.scans.names.Load(at); ok {
		return names.([]string), nil
	}
	names, err := l.names(l.ctx, d, func(name string) bool { return l.wants(at + name) })
	if err == nil {
		l.scans.names.Store(at, names)
	}
	return names, err
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

// add adds an object to the page, unless the page is full or an earlier one has it. It reports whether the
// name isn't a directory's.
func (l *listing) add(d *directory, name, key string) (file bool, err error) {
	_, obj, err := l.inspect(l.ctx, d, name, 0)
	switch {
	case errors.Is(err, errFolder):
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return true, nil // deleted meanwhile
	case obj.ETag != "" && (errors.Is(err, errIrregular) || errors.Is(err, fs.ErrPermission)):
		// Shown all the same: it might be a lock.
	case err != nil:
		return false, err
	}
	switch n := len(l.page.Objects); {
	case !l.ahead(key):
	case n == pageSize:
		l.page.Next = l.page.Objects[n-1].Key
	default:
		obj.Key = key
		l.page.Objects = append(l.page.Objects, obj)
	}
	return true, nil
}
