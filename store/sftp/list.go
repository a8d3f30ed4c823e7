package sftp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// List scans each directory that the prefix can be in at least twice, as store/dir does, and reads the files
// under the prefix. It returns all of them in one page, and ignores the cursor.
func (s *Store) List(ctx context.Context, prefix, _ string) (store.Page, error) {
	page, err := s.list(ctx, prefix)
	return page, failed("list", prefix, err)
}

func (s *Store) list(ctx context.Context, prefix string) (store.Page, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return store.Page{}, err
	}
	l := listing{Store: s, conn: c, ctx: ctx, prefix: prefix, room: files.MaxBodies, folders: map[string]*folder{}}
	l.page.Bodies = map[string][]byte{}
	l.readClock()
	dir, base := files.Split(prefix)
	if dir == "" {
		l.folder("")
	} else if store.CheckKey(dir) == nil { // else no key has the prefix
		l.follow(dir)
		l.folder(dir + "/")
		for _, name := range guesses {
			if strings.HasPrefix(name, base) {
				l.folder(dir + "/" + name + "/")
			}
		}
	}
	for len(l.steps)+len(l.unopened) > 0 {
		if err := l.fly(); err != nil {
			return store.Page{}, err
		}
	}
	l.finish()
	return l.page, ctx.Err()
}

// guesses are directories that most listings of locks find. They are opened together with the directory
// that they would be in.
var guesses = []string{"lock.intent", "lock.shared"}

// listing is one List under way. It sends its requests in flights: each answer can add requests to the
// next flight. So scanning directories one below another, and reading the files in them, costs four
// round trips, if their names were guessed.
type listing struct {
	*Store
	*conn
	ctx      context.Context
	prefix   string
	steps    []step
	folders  map[string]*folder // by what the keys in them begin with
	unopened []*file
	page     store.Page
	room     int // left in the page for bodies, in bytes
}

// step is a request, and what follows its answer. Without a request it only follows those before it.
type step struct {
	*sftpwire.Request
	then func(*sftpwire.Request) error
}

func (l *listing) add(r *sftpwire.Request, then func(*sftpwire.Request) error) {
	l.steps = append(l.steps, step{r, then})
}

// maxOpen is the number of files that one flight opens. A server allows a process some thousand.
const maxOpen = 128

// fly sends the next flight.
func (l *listing) fly() error {
	n := min(maxOpen, len(l.unopened))
	for _, f := range l.unopened[:n] {
		l.open(f)
	}
	l.unopened = l.unopened[n:]
	steps := l.steps
	l.steps = nil
	var requests []*sftpwire.Request
	for _, s := range steps {
		if s.Request != nil {
			requests = append(requests, s.Request)
		}
	}
	if err := l.do(l.ctx, requests...); err != nil {
		return err
	}
	for _, s := range steps {
		if s.then != nil {
			if err := s.then(s.Request); err != nil {
				return err
			}
		}
	}
	return nil
}

// readClock reads the server's clock. The kernel stamps the file at the write, and rounds down to
// seconds.
func (l *listing) readClock() {
	if l.clock == "" {
		return
	}
	write := sftpwire.Write(l.clock, 0, []byte("."))
	l.add(write, nil)
	l.add(sftpwire.Fstat(l.clock), func(r *sftpwire.Request) error {
		if write.Err() == nil && r.Err() == nil {
			l.page.Now = modTime(r.Attrs)
		}
		return nil
	})
}

// follow refuses links and other files in place of a directory. An object that is put through a link
// would be listed under another key.
func (l *listing) follow(dir string) {
	for _, above := range ancestors(dir) {
		l.add(sftpwire.Lstat(l.path(above)), func(r *sftpwire.Request) error { return l.isFolder(above, r) })
	}
}

// isFolder returns ErrIrregular if an Lstat has shown something else than a directory or a regular file.
// Below a regular file there is no object.
func (c *conn) isFolder(key string, lstat *sftpwire.Request) error {
	kind := lstat.Attrs.Kind()
	if lstat.Err() != nil || kind == sftpwire.KindDir || kind == sftpwire.KindRegular {
		return nil
	}
	return fmt.Errorf("%w: %q is not a directory", store.ErrIrregular, c.path(key))
}

// ancestors returns a directory and those above it, the highest first: "a", "a/b", "a/b/c".
func ancestors(dir string) (all []string) {
	for dir != "" {
		all = append(all, dir)
		dir, _ = files.Split(dir)
	}
	slices.Reverse(all)
	return all
}

// folder is a directory in a listing.
type folder struct {
	at       string // what the keys in it begin with
	wanted   files.Wanted
	handle   string                    // of the scan under way
	next     string                    // of the scan after it
	ahead    int                       // the number of Readdirs in a flight
	scan     []string                  // the wanted names so far in the scan under way
	last     []string                  // in the scan before
	scans    int                       // that are over
	found    map[string]sftpwire.Attrs // by name, in all scans
	other    bool                      // the name turned out not to be a directory's
	complete bool
}

// folder begins to scan a directory.
func (l *listing) folder(at string) {
	if l.folders[at] != nil && l.folders[at].scans >= 0 {
		return
	}
	f := &folder{at: at, wanted: files.Below(l.prefix, at), ahead: 2, found: map[string]sftpwire.Attrs{}}
	l.folders[at] = f
	l.opendir(f, func(handle string) {
		f.handle = handle
		l.readdir(f)
	})
}

// opendir opens a directory, unless it is missing.
func (l *listing) opendir(f *folder, then func(handle string)) {
	l.add(sftpwire.Opendir(l.path(strings.TrimSuffix(f.at, "/"))), func(r *sftpwire.Request) error {
		switch err := r.Err(); {
		case err == nil:
			then(r.Handle)
		case errors.Is(err, sftpwire.NoSuchFile):
			f.scans = -1 // a later scan of the directory above can show it
		case errors.Is(err, sftpwire.Failure):
			l.notFolder(f, err)
		default:
			return fmt.Errorf("opening the directory %q: %w", l.path(f.at), err)
		}
		return nil
	})
}

// notFolder ends with err, unless something else is in place of the directory: some servers call that a
// failure, too.
func (l *listing) notFolder(f *folder, err error) {
	f.scans = -1
	l.add(sftpwire.Lstat(l.path(strings.TrimSuffix(f.at, "/"))), func(r *sftpwire.Request) error {
		if r.Err() == nil && r.Attrs.Kind() == sftpwire.KindDir {
			return fmt.Errorf("opening the directory %q: %w", l.path(f.at), err)
		}
		return nil
	})
}

// readdir continues a scan. The first scan opens the directory for the second one, which begins after
// it. If the first scan didn't end in this flight, that was too early.
func (l *listing) readdir(f *folder) {
	ended := false
	for range f.ahead {
		l.add(sftpwire.Readdir(f.handle), func(r *sftpwire.Request) error {
			switch err := r.Err(); {
			case errors.Is(err, sftpwire.EOF):
				ended = true
			case err != nil:
				return fmt.Errorf("listing the directory %q: %w", l.path(f.at), err)
			}
			l.collect(f, r.Names)
			return nil
		})
	}
	f.ahead = min(4*f.ahead, 256)
	f.next = ""
	if f.scans == 0 {
		l.opendir(f, func(handle string) { f.next = handle })
	}
	l.add(nil, func(*sftpwire.Request) error {
		l.scanned(f, ended)
		return nil
	})
}

// scanned goes on after a flight of Readdirs. The scans of a directory end when two in a row have found the
// same names: see store/dir.
func (l *listing) scanned(f *folder, ended bool) {
	if !ended {
		l.close(f.next)
		l.readdir(f)
		return
	}
	l.close(f.handle)
	scan := files.Set(f.scan)
	f.scans++
	f.complete = f.scans > 1 && slices.Equal(scan, f.last) || f.scans == files.MaxScans
	f.last, f.scan, f.handle = scan, nil, f.next
	again := func(handle string) {
		f.handle = handle
		l.readdir(f)
	}
	switch {
	case f.complete:
		l.close(f.next)
	case f.handle != "":
		again(f.handle)
	case f.scans >= 0: // else it is gone
		l.opendir(f, again)
	}
}

func (l *listing) close(handle string) {
	if handle != "" {
		l.add(sftpwire.Close(handle), nil)
	}
}

// collect takes the names of a part of a scan.
func (l *listing) collect(f *folder, names []sftpwire.Entry) {
	for _, e := range names {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if files.IsTemp(e.Name) {
			if !l.page.Now.IsZero() && l.page.Now.Sub(modTime(e.Attrs)) > files.Abandoned {
				l.old.Store(l.path(f.at+e.Name), e.Attrs.Kind() == sftpwire.KindDir)
			}
			continue
		}
		file, below := f.wanted(e.Name)
		if !file && !below {
			continue
		}
		f.scan = append(f.scan, e.Name)
		if _, known := f.found[e.Name]; known {
			continue
		}
		f.found[e.Name] = e.Attrs
		l.found(f, e, file)
	}
}

// found begins to read a file, or to scan a directory.
func (l *listing) found(f *folder, e sftpwire.Entry, wanted bool) {
	key := f.at + e.Name
	switch kind := e.Attrs.Kind(); {
	case kind == sftpwire.KindDir:
		l.folder(key + "/")
	case kind == 0: // the server lists no kinds
		l.add(sftpwire.Lstat(l.path(key)), func(r *sftpwire.Request) error {
			if r.Err() == nil && r.Attrs.Kind() != 0 {
				l.found(f, sftpwire.Entry{Name: e.Name, Attrs: r.Attrs}, wanted)
			}
			return nil
		})
	default:
		if guess := l.folders[key+"/"]; guess != nil {
			guess.other = true
		}
		switch {
		case !wanted:
		case kind == sftpwire.KindRegular:
			l.unopened = append(l.unopened, &file{key: key, listed: e.Attrs})
		default:
			l.page.Objects = append(l.page.Objects, store.Object{Key: key, ETag: statTag(e.Attrs), Size: -1, ModTime: modTime(e.Attrs)})
		}
	}
}

// file is a regular file in a listing. Another kind of file must not be opened: the open of a pipe would
// wait for its writer, and with it all of OpenSSH's connection.
type file struct {
	key    string
	listed sftpwire.Attrs
}

// open reads a file. It might be a newer one than was listed. If it is gone, it was deleted meanwhile.
func (l *listing) open(f *file) {
	l.add(sftpwire.Open(l.path(f.key), sftpwire.FlagRead, 0), func(r *sftpwire.Request) error {
		switch err := r.Err(); {
		case errors.Is(err, sftpwire.NoSuchFile):
		case errors.Is(err, sftpwire.PermissionDenied): // it is shown all the same, because it might be a lock
			l.show(f.key, described(f.listed), nil)
		case err != nil:
			return fmt.Errorf("opening %q: %w", l.path(f.key), err)
		default:
			l.read(f, r.Handle)
		}
		return nil
	})
}

func (l *listing) read(f *file, handle string) {
	read, stat := sftpwire.Read(handle, 0, chunk), sftpwire.Fstat(handle)
	l.add(read, nil)
	l.add(stat, nil)
	l.add(sftpwire.Close(handle), func(*sftpwire.Request) error {
		body, obj, err := readBody(read, stat, files.MaxHashed)
		if errors.Is(err, errMore) {
			body, obj, err = l.conn.get(l.ctx, f.key, files.MaxHashed)
		}
		if errors.Is(err, sftpwire.NoSuchFile) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %q: %w", l.path(f.key), err)
		}
		l.show(f.key, obj, body)
		return nil
	})
}

// show adds an object to the page.
func (l *listing) show(key string, obj store.Object, body []byte) {
	obj.Key = key
	l.page.Objects = append(l.page.Objects, obj)
	if len(body) > 0 && len(body) <= l.room && files.CheckKey(key) == nil {
		l.room -= len(body)
		l.page.Bodies[key] = body
	}
}

// finish sorts the page, adds the empty directories, and removes what was found below a guess that isn't a
// directory.
func (l *listing) finish() {
	for _, at := range slices.Sorted(maps.Keys(l.folders)) {
		f := l.folders[at]
		if f.other {
			l.page.Objects = slices.DeleteFunc(l.page.Objects, func(o store.Object) bool { return strings.HasPrefix(o.Key, at) })
		} else if f.complete && len(f.found) == 0 && at != "" && strings.HasPrefix(at, l.prefix) {
			l.page.Folders = append(l.page.Folders, at)
		}
	}
	slices.SortFunc(l.page.Objects, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) })
}

func modTime(a sftpwire.Attrs) time.Time { return time.Unix(int64(a.Mtime), 0) }

// HasOther scans directories, one after the other, until one shows an object whose key doesn't begin with
// the prefix.
func (s *Store) HasOther(ctx context.Context, prefix string) (bool, error) {
	c, err := s.connected(ctx)
	dirs := []string{""}
	for err == nil && len(dirs) > 0 {
		var names []sftpwire.Entry
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		names, err = c.names(ctx, at)
		for _, e := range names {
			switch key := at + e.Name; {
			case e.Name == ".", e.Name == "..", files.IsTemp(e.Name), strings.HasPrefix(key, prefix):
			case e.Attrs.Kind() != sftpwire.KindDir:
				return true, nil
			default:
				dirs = append(dirs, key+"/")
			}
		}
	}
	return false, failed("list", "", err)
}

// names scans a directory once. A directory that is gone has none.
func (c *conn) names(ctx context.Context, at string) (names []sftpwire.Entry, err error) {
	open := sftpwire.Opendir(c.path(strings.TrimSuffix(at, "/")))
	err = c.do(ctx, open)
	if err != nil || errors.Is(open.Err(), sftpwire.NoSuchFile) {
		return nil, err
	}
	for err = open.Err(); err == nil; {
		read := sftpwire.Readdir(open.Handle)
		if err = c.do(ctx, read); err == nil {
			err = read.Err()
			names = append(names, read.Names...)
		}
	}
	c.later(sftpwire.Close(open.Handle))
	if errors.Is(err, sftpwire.EOF) {
		err = nil
	}
	return names, err
}
