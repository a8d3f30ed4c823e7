package sftp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// List scans each directory that can have keys with the prefix. It scans at least twice, as store/dir does. It reads
// the files under the prefix, returns all of them in one page, and ignores the cursor.
func (s *Store) List(ctx context.Context, prefix, _ string) (store.Page, error) {
	page, err := s.list(ctx, prefix)
	return page, failed("list", prefix, err)
}

func (s *Store) list(ctx context.Context, prefix string) (store.Page, error) {
	c, err := s.ready(ctx)
	if err != nil {
		return store.Page{}, err
	}
	l := listing{Store: s, conn: c, ctx: ctx, prefix: prefix, page: files.NewPage(), folders: map[string]*folder{}, handles: map[string]bool{}}
	defer l.release()
	l.readClock()
	l.add(sftpwire.Stat(l.path(".")), c.exists)
	dir, base := files.Split(prefix)
	if dir == "" {
		l.folder("")
	} else if store.CheckKey(dir) == nil { // if dir isn't a valid key, no key has the prefix
		l.follow(dir)
		l.folder(dir + "/")
		for _, name := range guesses {
			if strings.HasPrefix(name, base) {
				l.folder(dir + "/" + name + "/")
			}
		}
	}
	if p := store.Prepares(ctx); p != nil {
		if at, _ := files.Split(p.Key); at == dir { // the listing looks at the directories above the key
			l.waiting = append(l.waiting, func() { l.prepare(p, at) })
		}
	}
	misread := l.Misread()
	for !l.over() {
		if err := l.fly(); err != nil {
			return store.Page{}, err
		}
	}
	if l.Misread() != misread {
		return store.Page{}, fmt.Errorf("%w: the server's handles aren't OpenSSH's, so another listing has read some of this listing's names", store.ErrListing)
	}
	l.finish()
	return l.page.Page, ctx.Err()
}

// prepared is the temporary file of a Put.
type prepared struct {
	*conn
	path, handle string
}

// prepare makes the temporary file of the Put that follows the listing. It comes after all other requests of the first
// flight, because its failure makes guesses of later handles wrong.
func (l *listing) prepare(p *store.Preparation, dir string) {
	temp := prepared{conn: l.conn, path: l.temp(dir)}
	mode, _ := l.modes()
	l.add(sftpwire.Open(temp.path, newFile, mode), func(r *sftpwire.Request) error {
		if temp.handle = r.Handle; temp.handle != "" {
			delete(l.handles, temp.handle)
			p.Keep(temp, func() { temp.later(sftpwire.Close(temp.handle), sftpwire.Remove(temp.path)) })
		}
		return nil
	})
}

// guesses are directories that most listings of locks find. A listing opens them at the same time as the directory
// above them. The directory that is seldom missing comes first, because all guesses after a missing directory are
// wrong.
var guesses = []string{"lock.shared", "lock.intent"}

// listing is one List under way. It sends its requests in flights: each answer can add requests to the next flight. So
// it scans directories one below another, and reads the files in them, in four round trips, if it has guessed their
// names.
type listing struct {
	*Store
	*conn
	ctx     context.Context
	prefix  string
	steps   []step
	waiting []func()           // functions that add the step that opens a file or a directory
	folders map[string]*folder // by folder.at
	handles map[string]bool    // the open handles
	names   int                // number of names in all folders so far
	page    files.Page
}

// step is a request, and the function that is called after its answer. If there is no request, the function is called
// after the functions of the steps before it.
type step struct {
	*sftpwire.Request
	then   func(*sftpwire.Request) error
	closes string // the handle that the request closes, or ""
}

// over reports whether only handles are left to close. release closes them, and doesn't wait for the answers.
func (l *listing) over() bool {
	return len(l.waiting) == 0 && !slices.ContainsFunc(l.steps, func(s step) bool { return s.closes == "" })
}

func (l *listing) add(r *sftpwire.Request, then func(*sftpwire.Request) error) {
	l.steps = append(l.steps, step{Request: r, then: then})
}

func (l *listing) close(handle string) {
	if handle != "" {
		l.steps = append(l.steps, step{Request: sftpwire.Close(handle), closes: handle})
	}
}

// release closes the handles that are still open, in one flight.
func (l *listing) release() {
	var reqs []*sftpwire.Request
	for handle := range l.handles {
		reqs = append(reqs, sftpwire.Close(handle))
	}
	if len(reqs) > 0 {
		l.later(reqs...)
	}
}

// maxOpen is the number of files and directories that a listing opens at once. Scans can double it. Many servers allow
// a connection 1024.
const maxOpen = 128

// fly sends the next flight.
func (l *listing) fly() error {
	n := min(max(maxOpen-len(l.handles), 1), len(l.waiting))
	for _, open := range l.waiting[:n] {
		open()
	}
	l.waiting = l.waiting[n:]
	steps := l.steps
	l.steps = nil
	var requests []*sftpwire.Request
	for _, s := range steps {
		if s.Request != nil {
			requests = append(requests, s.Request)
			delete(l.handles, s.closes)
		}
	}
	if err := l.do(l.ctx, requests...); err != nil {
		return err
	}
	for _, r := range requests {
		if r.Handle != "" {
			l.handles[r.Handle] = true
		}
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

// readClock reads the server's clock. The kernel dates the file at the write, and rounds down to seconds. Some servers
// look at the file before they write. The size shows that, and then the listing looks again in its next flights. Only a
// connection that has put something has a clock.
func (l *listing) readClock() {
	l.conn.mu.Lock()
	clock := l.clock
	l.conn.mu.Unlock()
	if clock == "" {
		return
	}
	tick := uint64(l.ticks.Add(1))
	l.add(sftpwire.Write(clock, tick-1, []byte(".")), nil)
	looks := 0
	var then func(*sftpwire.Request) error
	then = func(r *sftpwire.Request) error {
		if looks++; r.Err() == nil && r.Attrs.Size >= tick {
			l.page.Now = modTime(r.Attrs)
		} else if looks < 3 {
			l.add(sftpwire.Fstat(clock), then)
		}
		return nil
	}
	l.add(sftpwire.Fstat(clock), then)
}

// follow refuses links and other files in the place of a directory. An object that is put through a link would be
// listed under another key, and no lock can be put below a file.
func (l *listing) follow(dir string) {
	for _, above := range ancestors(dir) {
		l.add(sftpwire.Lstat(l.path(above)), func(r *sftpwire.Request) error {
			if r.Err() == nil && r.Attrs.Kind() == sftpwire.KindRegular {
				return l.notDirectory(above)
			}
			return l.isFolder(above, r)
		})
	}
}

// isFolder returns ErrIrregular if an Lstat has shown neither a directory nor a regular file. It accepts a regular
// file, because no object is below one.
func (c *conn) isFolder(key string, lstat *sftpwire.Request) error {
	kind := lstat.Attrs.Kind()
	if lstat.Err() != nil || kind == sftpwire.KindDir || kind == sftpwire.KindRegular {
		return nil
	}
	return c.notDirectory(key)
}

func (c *conn) notDirectory(key string) error {
	return fmt.Errorf("%w: %q is not a directory", store.ErrIrregular, c.path(key))
}

// ancestors returns a directory and the directories above it, the highest first: "a", "a/b", "a/b/c".
func ancestors(dir string) (all []string) {
	for dir != "" {
		all = append(all, dir)
		dir, _ = files.Split(dir)
	}
	slices.Reverse(all)
	return all
}

// folder is a directory in a listing, with the state of its scans.
type folder struct {
	at       string // the beginning of all keys in it
	wanted   files.Wanted
	handle   string          // handle of the present scan
	next     string          // handle of the next scan
	ahead    int             // the number of Readdirs in a flight
	scan     []string        // wanted names in the present scan so far
	last     []string        // wanted names in the previous scan
	scans    int             // number of finished scans
	misses   int             // how often the handle wasn't the guessed one
	quick    bool            // the present scan is a quick one
	counted  bool            // the last scan counted
	absent   bool            // the last attempt to open it found no directory
	unsure   bool            // since the last scan ended, a name that the scans have found couldn't be opened
	found    map[string]bool // the names of all scans
	missing  map[string]int  // how often each name was listed and couldn't be opened
	other    bool            // the name belongs to another kind of file
	skipped  bool            // we aren't permitted to read it, and the caller ignores all keys below it
	complete bool
}

// folder begins to scan a directory, unless that has begun. If a guessed directory was absent, but a scan of the
// directory above now shows it, folder scans it.
func (l *listing) folder(at string) {
	if known := l.folders[at]; known != nil && !known.absent {
		return
	}
	f := &folder{at: at, wanted: files.Below(l.prefix, at), ahead: firstAhead, found: map[string]bool{}, missing: map[string]int{}}
	l.folders[at] = f
	l.waiting = append(l.waiting, func() { l.begin(f) })
}

// begin begins a scan of a directory. If the client can guess the handle, the scan is quick: it reads the directory in
// the flight that opens it. So the server opens and reads it in one go.
//
// On btrfs a directory that is open shows no name that came after it was opened, not even the name of a file that is
// replaced. So if a scan takes two flights, it misses a file that is replaced meanwhile.
func (l *listing) begin(f *folder) {
	f.handle = ""
	open := l.opendir(f, func(handle string) { f.handle = handle })
	var reads []*sftpwire.Request
	for n := 0; n < f.ahead && l.Guesses() && f.misses < maxMisses; n++ {
		reads = append(reads, sftpwire.ReaddirOf(open))
		l.add(reads[n], nil)
	}
	l.add(nil, func(*sftpwire.Request) error {
		switch {
		case f.handle == "":
			return nil
		case len(reads) == 0:
			l.readdir(f)
			return nil
		case slices.ContainsFunc(reads, func(r *sftpwire.Request) bool { return !r.Answered }):
			f.misses++
			l.close(f.handle)
			l.begin(f)
			return nil
		}
		ended, err := l.collectAll(f, reads)
		if f.quick = ended; !ended {
			f.ahead = further(f.ahead)
		}
		if err == nil {
			l.scanned(f, ended)
		}
		return err
	})
}

// maxMisses is how often a listing guesses again. A guess is wrong after an open of the same flight, or of another
// listing under way, has failed.
const maxMisses = 4

// opendir opens a directory, unless it is missing, or is a link. It also looks inside, because OpenSSH's server shows a
// directory as empty if we can read but not enter it.
func (l *listing) opendir(f *folder, then func(handle string)) *sftpwire.Request {
	key := strings.TrimSuffix(f.at, "/")
	look, enter := sftpwire.Lstat(l.path(key)), sftpwire.Lstat(l.path(f.at+"."))
	l.add(look, nil)
	l.add(enter, nil)
	open := sftpwire.Opendir(l.path(key))
	l.add(open, func(r *sftpwire.Request) error {
		switch err := r.Err(); {
		case err == nil && look.Err() == nil && look.Attrs.Kind() == sftpwire.KindLink:
			f.absent = true
			l.close(r.Handle)
		case err == nil && l.skips(f, enter.Err()):
			l.close(r.Handle)
		case l.skips(f, err):
		case err == nil && errors.Is(enter.Err(), sftpwire.PermissionDenied):
			return fmt.Errorf("entering the directory %q: %w", l.path(f.at), enter.Err())
		case err == nil:
			then(r.Handle)
		case errors.Is(err, sftpwire.NoSuchFile):
			f.absent = true
		case errors.Is(err, sftpwire.Failure):
			l.notFolder(f, err)
		default:
			return fmt.Errorf("opening the directory %q: %w", l.path(f.at), err)
		}
		return nil
	})
	return open
}

// skips reports whether the listing skips a directory because of an error: see store.Skipping.
func (l *listing) skips(f *folder, err error) bool {
	f.skipped = f.skipped || errors.Is(err, sftpwire.PermissionDenied) && store.Skips(l.ctx, f.at)
	return errors.Is(err, sftpwire.PermissionDenied) && f.skipped
}

// notFolder makes the listing fail with err, unless another kind of file is in the place of the directory. Some servers
// answer Failure for that, too.
func (l *listing) notFolder(f *folder, err error) {
	f.absent = true
	key := strings.TrimSuffix(f.at, "/")
	l.add(sftpwire.Lstat(l.path(key)), func(r *sftpwire.Request) error {
		looked := l.absent(l.ctx, key, r.Err())
		if errors.Is(looked, sftpwire.NoSuchFile) || looked == nil && r.Attrs.Kind() != sftpwire.KindDir {
			return nil
		}
		return fmt.Errorf("opening the directory %q: %w", l.path(f.at), err)
	})
}

// firstAhead is the number of Readdirs in the first flight of a scan. Each later flight has more.
const firstAhead = 2

func further(ahead int) int { return min(4*ahead, 256) }

// readdir continues a scan. If the handle can't be guessed, the first scan also opens the directory for the second one,
// to save a flight. If the first scan doesn't end in this flight, that was too early, and the next flight opens the
// directory again.
func (l *listing) readdir(f *folder) {
	reads := make([]*sftpwire.Request, f.ahead)
	for i := range reads {
		reads[i] = sftpwire.Readdir(f.handle)
		l.add(reads[i], nil)
	}
	f.ahead = further(f.ahead)
	f.next = ""
	if f.scans == 0 && !f.absent && !l.Guesses() {
		l.opendir(f, func(handle string) { f.next = handle })
	}
	l.add(nil, func(*sftpwire.Request) error {
		ended, err := l.collectAll(f, reads)
		if err == nil {
			l.scanned(f, ended)
		}
		return err
	})
}

// collectAll adds the names of Readdirs to a scan, and reports whether the scan has ended.
func (l *listing) collectAll(f *folder, reads []*sftpwire.Request) (ended bool, err error) {
	for _, r := range reads {
		switch err := r.Err(); {
		case errors.Is(err, sftpwire.EOF), l.skips(f, err):
			ended = true
		case err != nil:
			return false, fmt.Errorf("listing the directory %q: %w", l.path(f.at), err)
		}
		if err := l.collect(f, r.Names); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// scanned continues after a flight of Readdirs. The scans of a directory end when two in a row have found the same
// names: see store/dir. On a server whose handles can be guessed, both scans must be quick. If the directory was absent
// when readdir opened it for the second scan, the first scan doesn't count.
func (l *listing) scanned(f *folder, ended bool) {
	if !ended {
		l.close(f.next)
		l.readdir(f)
		return
	}
	l.close(f.handle)
	if !f.absent {
		f.scans++
	}
	scan, counts := files.Set(f.scan), f.quick || !l.Guesses()
	f.complete = f.scans > 1 && f.counted && counts && !f.unsure && slices.Equal(scan, f.last) || f.scans >= files.MaxScans
	f.last, f.scan, f.absent, f.unsure, f.quick, f.counted = scan, nil, false, false, false, counts
	f.handle = f.next
	switch {
	case f.complete:
		l.close(f.next)
	case f.handle != "":
		l.readdir(f)
	default:
		l.begin(f)
	}
}

// vanished makes the listing scan a directory again, because it lists a name that can't be opened. Most often the file
// was deleted meanwhile. But some file systems (FUSE) also don't find a name while it is being replaced.
func (l *listing) vanished(f *folder, name string) error {
	if f.missing[name]++; f.missing[name] == files.MaxScans {
		return fmt.Errorf("%w: the server lists %q, but can't open it because it is missing", store.ErrListing, l.path(f.at+name))
	}
	delete(f.found, name)
	l.names--
	if f.complete {
		f.complete = false
		l.begin(f)
	} else {
		f.unsure = true // so the present scan isn't the last one
	}
	return nil
}

// maxNames bounds the names of a listing. A folder with more was put in the place of a folder of locks.
var maxNames = 1 << 16

// checkName returns ErrListing for a name that no file can have, because such a listing isn't reliable.
func (c *conn) checkName(at, name string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%w: the server lists %q in %q", store.ErrListing, name, c.path(at))
	}
	return nil
}

// collect adds the names of one answer to a scan.
func (l *listing) collect(f *folder, names []sftpwire.Entry) error {
	for _, e := range names {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if err := l.checkName(f.at, e.Name); err != nil {
			return err
		}
		if files.IsTemp(e.Name) {
			now := l.page.Now
			if now.IsZero() {
				now = l.now()
			}
			l.stray(l.conn, f.at, e, now)
			continue
		}
		file, below := f.wanted(e.Name)
		if !file && !below {
			continue
		}
		f.scan = append(f.scan, e.Name)
		if f.found[e.Name] {
			continue
		}
		f.found[e.Name] = true
		if l.names++; l.names > maxNames {
			return fmt.Errorf("%w: more than %d names are below %q, too many for locks", store.ErrIrregular, maxNames, l.path(strings.TrimSuffix(f.at, "/")))
		}
		l.found(f, e, file)
	}
	return nil
}

// found begins to read a file, or to scan a directory, that a scan has found.
func (l *listing) found(f *folder, e sftpwire.Entry, wanted bool) {
	key := f.at + e.Name
	switch kind := e.Attrs.Kind(); {
	case kind == sftpwire.KindDir:
		l.folder(key + "/")
	case kind == 0: // the server doesn't list the kinds of files
		l.add(sftpwire.Lstat(l.path(key)), func(r *sftpwire.Request) error {
			switch err := r.Err(); {
			case errors.Is(err, sftpwire.NoSuchFile):
				return l.vanished(f, e.Name)
			case err != nil:
				return fmt.Errorf("looking at %q: %w", l.path(key), err)
			case r.Attrs.Kind() == 0:
				return fault.New(store.ErrConfig, "the server doesn't show what kind of file %q is", l.path(key))
			}
			l.found(f, sftpwire.Entry{Name: e.Name, Attrs: r.Attrs}, wanted)
			return nil
		})
	default:
		if guess := l.folders[key+"/"]; guess != nil {
			guess.other = true
		}
		switch {
		case !wanted:
		case kind == sftpwire.KindRegular:
			l.waiting = append(l.waiting, func() { l.open(f, e) })
		default:
			l.page.Objects = append(l.page.Objects, store.Object{Key: key, ETag: statTag(e.Attrs), Size: -1, ModTime: modTime(e.Attrs)})
		}
	}
}

// open reads a regular file, which might be newer than the listed one. It must not open another kind of file: the open
// of a pipe would wait for its writer, and block all of OpenSSH's connection.
//
// If the client can guess the handle, it reads the file in the flight that opens it.
func (l *listing) open(f *folder, e sftpwire.Entry) {
	key := f.at + e.Name
	open := sftpwire.Open(l.path(key), sftpwire.FlagRead, 0)
	read, stat := sftpwire.ReadOf(open, 0, chunk), sftpwire.FstatOf(open)
	l.add(open, func(r *sftpwire.Request) error {
		switch err := r.Err(); {
		case errors.Is(err, sftpwire.NoSuchFile):
			return l.vanished(f, e.Name)
		case errors.Is(err, sftpwire.PermissionDenied): // the page shows it nevertheless, because it might be a lock
			l.show(key, described(e.Attrs), nil)
		case err != nil:
			return fmt.Errorf("opening %q: %w", l.path(key), err)
		case read.Answered && stat.Answered:
			l.close(r.Handle)
			return l.read(f, e.Name, read, stat)
		default:
			again, stat := sftpwire.Read(r.Handle, 0, chunk), sftpwire.Fstat(r.Handle)
			l.add(again, nil)
			l.add(stat, func(*sftpwire.Request) error { return l.read(f, e.Name, again, stat) })
			l.close(r.Handle)
		}
		return nil
	})
	l.add(read, nil)
	l.add(stat, nil)
}

// read shows a file from the answers to its first Read and to an Fstat.
func (l *listing) read(f *folder, name string, read, stat *sftpwire.Request) error {
	key := f.at + name
	body, obj, err := readBody(read, stat, files.MaxHashed)
	if errors.Is(err, errMore) {
		body, obj, err = l.conn.get(l.ctx, key, files.MaxHashed)
	}
	if errors.Is(err, sftpwire.NoSuchFile) {
		return l.vanished(f, name)
	}
	if err != nil {
		return fmt.Errorf("reading %q: %w", l.path(key), err)
	}
	l.show(key, obj, body)
	return nil
}

// show adds an object to the page.
func (l *listing) show(key string, obj store.Object, body []byte) {
	obj.Key = key
	l.page.Show(obj, body)
}

// finish sorts the page, and adds the empty directories. It removes the objects that seemed to be below a guessed
// directory that isn't one.
func (l *listing) finish() {
	for _, at := range slices.Sorted(maps.Keys(l.folders)) {
		f := l.folders[at]
		if f.other {
			l.page.Objects = slices.DeleteFunc(l.page.Objects, func(o store.Object) bool { return strings.HasPrefix(o.Key, at) })
		} else if f.skipped {
			l.page.Objects = append(l.page.Objects, store.Skipped(at))
		} else if f.complete && len(f.found) == 0 && at != "" && strings.HasPrefix(at, l.prefix) {
			l.page.Folders = append(l.page.Folders, at)
		}
	}
	slices.SortFunc(l.page.Objects, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) })
}

func modTime(a sftpwire.Attrs) time.Time { return time.Unix(int64(a.Mtime), 0) }

// HasOther scans one directory after another, until one shows an object whose key doesn't begin with the prefix.
func (s *Store) HasOther(ctx context.Context, prefix string) (bool, error) {
	c, err := s.ready(ctx)
	dirs := []string{""}
	for err == nil && len(dirs) > 0 {
		var names []sftpwire.Entry
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		names, err = c.names(ctx, at)
		for _, e := range names {
			switch key, bad := at+e.Name, c.checkName(at, e.Name); {
			case bad != nil:
				return false, failed("list", "", bad)
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

// names scans a directory once. It returns no names if the directory is gone.
func (c *conn) names(ctx context.Context, at string) (names []sftpwire.Entry, err error) {
	open := sftpwire.Opendir(c.path(strings.TrimSuffix(at, "/")))
	err = c.do(ctx, open)
	if err != nil || at != "" && errors.Is(open.Err(), sftpwire.NoSuchFile) {
		return nil, err
	}
	err = open.Err()
	for ahead := firstAhead; err == nil; ahead = further(ahead) {
		reads := make([]*sftpwire.Request, ahead)
		for i := range reads {
			reads[i] = sftpwire.Readdir(open.Handle)
		}
		err = c.do(ctx, reads...)
		for i := 0; i < ahead && err == nil; i++ {
			err = reads[i].Err()
			names = append(names, reads[i].Names...)
		}
	}
	c.later(sftpwire.Close(open.Handle))
	if errors.Is(err, sftpwire.EOF) {
		err = nil
	}
	return names, err
}
