package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// tick is longer than file times can be behind the clock that programs read. The kernel advances file times with the
// timer interrupt, at least every 10 ms.
const tick = 20 * time.Millisecond

// List reads each directory that can have keys with the prefix, and the files under the prefix. It returns all of them
// in one page, and ignores the cursor.
func (s *Store) List(ctx context.Context, prefix, _ string) (page store.Page, err error) {
	defer func() { err = failed("list", prefix, err) }()
	if err := ctx.Err(); err != nil {
		return page, err
	}
	root, err := s.open()
	if err != nil {
		return page, err
	}
	defer root.Close()
	l := listing{Store: s, ctx: ctx, prefix: prefix, page: files.NewPage()}
	if dir, _ := files.Split(prefix); dir == "" || store.CheckKey(dir) == nil { // else no key has the prefix
		if err = l.enter(root, dir, ""); errors.Is(err, errNotDir) {
			err = fmt.Errorf("%w: %w", store.ErrIrregular, err) // no lock can be put there, so "no locks" would be a wrong answer
		}
	}
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return page, err
	}
	if s.local {
		// The kernel might date a file that is written from now on up to a tick in the past. Page.Now must not be later
		// than such a date.
		l.page.Now = s.now().Round(0).Add(-tick)
	}
	return l.page.Page, nil
}

// listing is one List under way.
type listing struct {
	*Store
	ctx    context.Context
	prefix string
	page   files.Page
}

// enter walks through the directory at path, relative to parent. The keys in parent begin with at. The directory can be
// missing. If a file is in its place, enter returns errNotDir.
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never there, or another process has removed the empty directory
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return l.enter(d, rest, at+name+"/")
}

// walk adds the objects in and below a directory. Their keys begin with at. A directory's name ends with a slash, so
// that the names sort like the keys below them: "a-b" < "a/b" < "a0".
func (l *listing) walk(d *directory, at string) error {
	wanted := files.Below(l.prefix, at)
	names, err := l.names(l.ctx, d, wanted)
	if err != nil {
		return err
	}
	if len(names) == 0 && at != "" && strings.HasPrefix(at, l.prefix) {
		l.page.Folders = append(l.page.Folders, at)
	}
	// A name that is wanted both as a file's and as a directory's is among the names twice.
	l.page.Objects = slices.Grow(l.page.Objects, len(names)/2)
	folders := map[string]bool{} // the directories among the names that are wanted as files
	for i, name := range names {
		names[i] = "" // a directory of flags has many names, and the page has them too
		if dir, folder := strings.CutSuffix(name, "/"); !folder {
			var file bool
			if file, err = l.add(d, name, at+name); !file {
				folders[name] = true
			}
		} else if file, _ := wanted(dir); !file || folders[dir] {
			begin := len(l.page.Objects)
			switch err = l.enter(d, dir, at); {
			case errors.Is(err, errNotDir):
				err = nil // the name has just changed from a directory to an object, or from an object to a directory
			case errors.Is(err, fs.ErrPermission) && store.Skips(l.ctx, at+name):
				l.page.Objects = slices.Insert(l.page.Objects, begin, store.Skipped(at+name))
				err = nil
			}
		}
		if err = cmp.Or(err, l.ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// add adds an object to the page. It returns false if the name belongs to a directory.
func (l *listing) add(d *directory, name, key string) (file bool, err error) {
	body, obj, err := l.inspect(l.ctx, d, name, 0)
	switch {
	case errors.Is(err, errFolder):
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		return true, nil // it was deleted meanwhile
	case obj.ETag != "" && (errors.Is(err, errIrregular) || errors.Is(err, fs.ErrPermission)):
		// The page shows it nevertheless, because it might be a lock.
	case err != nil:
		return false, err
	}
	obj.Key = key
	l.page.Show(obj, body)
	return true, nil
}

// maxLooks is how often find looks for a name that is listed but can't be found. The looks are a millisecond apart. On
// bindfs one or two are enough.
const maxLooks = 100

// find calls look, which looks for a name in a directory. It repeats that as long as look returns fs.ErrNotExist
// although the directory lists the name.
//
// A name can seem to be missing on a file system that isn't known to be local. On a FUSE file system (bindfs, ntfs-3g,
// exfat) a name is missing for a moment while it is being replaced, although rename(2) doesn't allow that. A mount that
// caches missing names doesn't find another machine's new file until its cache expires. So on such a file system, find
// returns fs.ErrNotExist only if a new listing of the directory doesn't have the name. After maxLooks it returns
// another error.
func (s *Store) find(ctx context.Context, d *directory, name string, look func() error) error {
	for range maxLooks {
		err := look()
		if !errors.Is(err, fs.ErrNotExist) || s.local {
			return err
		}
		listed, lerr := s.names(ctx, d, func(n string) (file, folder bool) { return n == name, false })
		if lerr != nil || len(listed) == 0 {
			return cmp.Or(lerr, err)
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s is listed, but can't be opened because it is missing: if this mount caches missing names, mount it with "+
		"negative_timeout=0 (FUSE) or lookupcache=none (NFS)", d.full(name))
}

// names returns the wanted names in a directory, sorted. All its scans begin after the call.
//
// A single scan isn't enough. When a file is renamed over another one, some file systems (btrfs, tmpfs) move the name
// within the directory. If they move it to a place that a scan has already read, the scan shows neither the old file
// nor the new one. POSIX allows that. The listing must not miss a lock that is being refreshed. So names scans until
// two scans in a row find the same names, and returns the names of all scans. It misses an existing name only if the
// file was replaced during each scan, and the refreshes of a lock are seconds apart.
func (s *Store) names(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
	if s.hides {
		return s.quietNames(ctx, d, wanted)
	}
	if !s.local {
		d.reread()
	}
	var all, last []string
	for n := range files.MaxScans {
		next, err := s.scan(ctx, d, wanted)
		if err != nil {
			return nil, err
		}
		// To sort many names takes as long as to scan them, and they usually come in the same order again.
		if n > 0 && (slices.Equal(last, next) || slices.Equal(files.Set(slices.Clone(last)), files.Set(slices.Clone(next)))) {
			break
		}
		all, last = append(all, next...), next
	}
	return files.Set(all), nil // a scan can also see a moved name twice
}

// reread makes the next scan read the directory anew if its file system caches listings. sshfs caches them for 20 s,
// and NFS, SMB and rclone have such caches too. Making and removing a file empties this machine's cache of the
// directory. If reread can't make a file, the scan might read the cache.
func (d *directory) reread() {
	temp := files.NewTemp()
	if f, err := d.Create(temp, 0o600); err == nil {
		_ = f.Close()
		_ = d.Remove(temp)
	}
}

// scan returns the wanted names in the directory's order. It returns the name itself if a file of this name is wanted,
// and the name with a slash at its end if a directory is wanted.
//
// scan doesn't find out whether a name belongs to a file or to a directory, because that can fail although the name
// exists (see find). os.File.ReadDir would then omit the name, if the file system doesn't list types (FUSE).
func scan(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
	var names []string
	for name, err := range d.names() {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if files.IsTemp(name) {
			continue
		}
		file, folder := wanted(name)
		if folder {
			slashed := name + "/"
			name = slashed[:len(name)] // one text in memory
			names = append(names, slashed)
		}
		if file {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}
