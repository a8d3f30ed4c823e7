//go:build unix

package sftp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// TestFlights: each request costs a fixed number of round trips.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &relay{}
		s := r.on(t, repository(t, 0o700))
		costs := func(what string, want int, do func() error) {
			t.Helper()
			synctest.Wait()
			before := r.flights.Load()
			assert.OK(t, do())
			synctest.Wait()
			assert.Equal(t, int(r.flights.Load()-before), want, what)
		}
		puts := func(key string) func() error {
			return func() error { return assert.Err(s.Put(t.Context(), key, []byte("body"), store.PutOptions{})) }
		}
		lists := func(prefix string) func() error {
			return func() error { return assert.Err(s.List(t.Context(), prefix, "")) }
		}
		costs("a put that makes directories", 5, puts("index/lock.shared/a"))
		costs("a put", 3, puts("index/lock.shared/a"))
		put(t, s, "index/lock.exclusive", "index/lock.intent/a")
		costs("a put if absent", 3, func() error {
			return assert.Err(s.Put(t.Context(), "index/lock-fence", nil, store.PutOptions{IfAbsent: true}))
		})
		costs("a listing of locks", 4, lists("index/lock."))
		costs("a get", 3, func() error { return assert.Err(second(s.Get(t.Context(), "index/lock.exclusive", 100))) })
		costs("a deletion", 1, func() error { return s.Delete(t.Context(), "index/lock.exclusive") })
		costs("many deletions", 1, func() error {
			return assert.Err(s.DeleteAll(t.Context(), []string{"index/lock.shared/a", "index/lock.intent/a"}))
		})
		for i := range 250 {
			put(t, s, fmt.Sprintf("index/lock.shared/%d", i))
		}
		costs("a listing of 250 locks", 7, lists("index/lock."))
		assert.Equal(t, r.dials.Load(), 1)
	})
}

func second[A, B any](_ A, b B, err error) (B, error) { return b, err }

// TestNothingElseIsOpened: a listing shows a link, a pipe and the like without a size, and opens only regular
// files. A Get refuses them, and a Delete removes them.
func TestNothingElseIsOpened(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	put(t, s, "index/lock.exclusive", "other")
	assert.OK(t, os.Symlink("../other", filepath.Join(root, "index/lock.linked")))
	assert.OK(t, os.Mkdir(filepath.Join(root, "index/lock.dir"), 0o700))
	special := append([]string{"index/lock.linked"}, pipes(t, root, "index/lock.pipe")...)
	opens := r.seen(typeOpen)
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), append([]string{"index/lock.exclusive"}, special...))
	assert.Equal(t, p.Folders, []string{"index/lock.dir/"})
	assert.Equal(t, r.seen(typeOpen)-opens, 1, "opened files")
	for _, o := range p.Objects[1:] {
		assert.Equal(t, o.Size, -1, o.Key)
		_, _, err := s.Get(t.Context(), o.Key, 100)
		assert.Is(t, err, store.ErrIrregular, "%s", o.Key)
		assert.OK(t, s.Delete(t.Context(), o.Key))
	}
	assert.Equal(t, r.seen(typeOpen)-opens, 1, "opened files")
	assert.OK(t, s.Delete(t.Context(), "index/lock.dir/"))
	has(t, root, "index/", "index/lock.exclusive", "other")
}

// TestLinkedDirectory: no request follows a link in place of a directory.
func TestLinkedDirectory(t *testing.T) {
	root := repository(t, 0o700)
	s := inGo.on(t, root)
	put(t, s, "elsewhere/x")
	assert.OK(t, os.Symlink("elsewhere", filepath.Join(root, "index")))
	_, err := s.List(t.Context(), "index/lock.", "")
	assert.Says(t, err, store.ErrIrregular, "index")
	_, err = s.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{})
	assert.Says(t, err, store.ErrIrregular, "index")
	has(t, root, "elsewhere/", "elsewhere/x", "index")
	for _, prefix := range []string{"elsewhere/x/lock.", "elsewhere/x/y/lock."} { // a file in place of a directory
		_, err := s.List(t.Context(), prefix, "")
		assert.Says(t, err, store.ErrIrregular, `elsewhere/x" is not a directory`)
	}

	assert.OK(t, os.Remove(filepath.Join(root, "index")))
	put(t, s, "index/lock.exclusive")
	guess := filepath.Join(root, "index/lock.shared")
	assert.OK(t, os.Symlink("../elsewhere", guess))
	follows := func(r request) []byte { // the server's LSTAT follows links
		if r.kind == typeLstat && r.path() == guess {
			return reply(typeAttrs, r.id, perm(sftpwire.KindDir|0o700))
		}
		return nil
	}
	for _, answer := range []func(request) []byte{nil, follows} {
		p, err := (&relay{answer: answer}).on(t, root).List(t.Context(), "index/lock.", "")
		assert.OK(t, err)
		assert.Equal(t, keys(p), []string{"index/lock.exclusive", "index/lock.shared"})
	}
}

// TestLinkedTree: a listing reads nothing below a link in place of a guessed directory, however much is there. The link
// is listed, and a Delete removes it.
func TestLinkedTree(t *testing.T) {
	for _, name := range guesses {
		root, tree := repository(t, 0o700), t.TempDir()
		assert.OK(t, os.MkdirAll(filepath.Join(tree, "below"), 0o700))
		for i := range 10 {
			assert.OK(t, os.WriteFile(filepath.Join(tree, fmt.Sprint("below/", i)), nil, 0o600))
			assert.OK(t, os.WriteFile(filepath.Join(tree, fmt.Sprint(i)), nil, 0o600))
		}
		r := &relay{}
		s := r.on(t, root)
		put(t, s, "index/lock.exclusive")
		link := filepath.Join(root, "index", name)
		assert.OK(t, os.Symlink(tree, link))
		opens, reads := r.seen(typeOpen), 0
		r.answers(func(req request) []byte {
			if req.kind == typeOpendir && strings.HasPrefix(req.path(), link+"/") {
				reads++
			}
			return nil
		})
		p, err := s.List(t.Context(), "index/lock.", "")
		assert.OK(t, err)
		assert.Equal(t, keys(p), []string{"index/lock.exclusive", "index/" + name})
		assert.Equal(t, r.seen(typeOpen)-opens, 1, "opened files")
		assert.Equal(t, reads, 0, "opened directories")
		assert.OK(t, s.Delete(t.Context(), "index/"+name))
		has(t, root, "index/", "index/lock.exclusive")
	}
}

// TestTooManyNames: a listing fails once it has found more names than locks can have, in one directory or in many.
func TestTooManyNames(t *testing.T) {
	names := maxNames
	defer func() { maxNames = names }()
	maxNames = 10
	root := repository(t, 0o700)
	s := inGo.on(t, root)
	for i := range maxNames - 1 {
		put(t, s, fmt.Sprint("index/lock.shared/", i))
	}
	_, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	put(t, s, "index/lock.shared/x/y")
	_, err = s.List(t.Context(), "index/lock.", "")
	assert.Says(t, err, store.ErrIrregular, "more than 10 names are below")
}

// TestRootIsGone: each request finds out that the repository's directory is gone, and makes no other.
func TestRootIsGone(t *testing.T) {
	root := repository(t, 0o700)
	s := inGo.on(t, root)
	put(t, s, "index/lock.exclusive")
	assert.OK(t, os.Rename(root, root+".old"))
	for what, err := range map[string]error{
		"list": assert.Err(s.List(t.Context(), "index/lock.", "")), "list all": assert.Err(s.List(t.Context(), "", "")),
		"put":       assert.Err(s.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{})),
		"put above": assert.Err(s.Put(t.Context(), "new", nil, store.PutOptions{})),
		"get":       assert.Err(second(s.Get(t.Context(), "index/lock.exclusive", 100))),
		"delete":    s.Delete(t.Context(), "index/lock.exclusive"), "delete all": assert.Err(s.DeleteAll(t.Context(), []string{"index/x"})),
	} {
		assert.Is(t, err, store.ErrNotFound, what)
	}
	_, err := s.HasOther(t.Context(), "index/lock")
	assert.That(t, err != nil, "no error of HasOther")
	assert.Is(t, assert.Err(os.Stat(root)), os.ErrNotExist)
}

// TestUnseenRoot: if the server refuses the look at the repository's directory, its reason is the error: the directory
// can be there. A file in the directory's place is no repository.
func TestUnseenRoot(t *testing.T) {
	for _, c := range []struct {
		answer func(id uint32) []byte
		want   error
		words  string
	}{
		{func(id uint32) []byte { return status(id, sftpwire.PermissionDenied) }, store.ErrPermission, "opening"},
		{func(id uint32) []byte { return status(id, sftpwire.Failure) }, sftpwire.Failure, "opening"},
		{func(id uint32) []byte { return status(id, sftpwire.NoSuchFile) }, store.ErrNotFound, "there is no directory"},
		{func(id uint32) []byte { return reply(typeAttrs, id, perm(sftpwire.KindRegular|0o600)) }, store.ErrNotFound, "isn't a directory"},
	} {
		root := repository(t, 0o700)
		r := &relay{}
		s := r.on(t, root)
		r.answers(func(req request) []byte {
			if req.kind == typeStat {
				return c.answer(req.id)
			}
			return nil
		})
		for what, err := range map[string]error{
			"list": assert.Err(s.List(t.Context(), "index/lock.", "")),
			"get":  assert.Err(second(s.Get(t.Context(), "k", 100))),
			"put":  assert.Err(s.Put(t.Context(), "k", nil, store.PutOptions{})),
		} {
			assert.Says(t, err, c.want, c.words, what)
			assert.Equal(t, errors.Is(err, store.ErrNotFound), c.want == store.ErrNotFound, what)
		}
		has(t, root)
	}
}

// TestOddListings: a listing fails if the server shows what can't be, or not enough. It must not miss a lock.
func TestOddListings(t *testing.T) {
	regular := perm(sftpwire.KindRegular | 0o600)
	for name, c := range map[string]struct {
		names map[string]string
		lstat []byte // instead of the server's answers for lock.exclusive
		want  error
		keys  []string
	}{
		"a path":                     {names: map[string]string{"index/lock.exclusive": regular}, want: store.ErrListing},
		"a NUL":                      {names: map[string]string{"lock.\x00": regular}, want: store.ErrListing},
		"no name":                    {names: map[string]string{"": perm(sftpwire.KindDir | 0o700)}, want: store.ErrListing},
		"no attributes":              {names: map[string]string{"lock.exclusive": u32(0)}, keys: []string{"index/lock.exclusive"}},
		"never a kind":               {names: map[string]string{"lock.exclusive": u32(0)}, lstat: reply(typeAttrs, 0, u32(0)), want: store.ErrConfig},
		"no attributes to read":      {names: map[string]string{"lock.exclusive": u32(0)}, lstat: status(0, sftpwire.Failure), want: sftpwire.Failure},
		"never there":                {names: map[string]string{"lock.none": regular}, want: store.ErrListing},
		"no attributes, never there": {names: map[string]string{"lock.none": u32(0)}, want: store.ErrListing},
	} {
		t.Run(name, func(t *testing.T) {
			handle, shown := "", 0 // of index
			r := &relay{}
			r.edits(func(p []byte) []byte { return p })
			s := r.on(t, repository(t, 0o700))
			put(t, s, "index/lock.exclusive")
			r.answers(func(req request) []byte {
				switch {
				case req.kind == typeReaddir && (handle == "" || req.path() == handle):
					handle = req.path()
					if shown++; shown%2 == 0 {
						handle = ""
						return status(req.id, sftpwire.EOF)
					}
					return listed(req.id, c.names)
				case req.kind == typeLstat && c.lstat != nil && strings.HasSuffix(req.path(), "/lock.exclusive"):
					return reply(c.lstat[4], req.id, string(c.lstat[9:]))
				}
				return nil
			})
			p, err := s.List(t.Context(), "index/lock.", "")
			assert.Is(t, err, c.want)
			assert.Equal(t, keys(p), c.keys)
			if c.want == store.ErrListing && len(name) < 8 {
				_, err = s.HasOther(t.Context(), "x")
				assert.Is(t, err, store.ErrListing)
			}
		})
	}
}

// TestDuplicates: a name that a scan sees twice is listed once.
func TestDuplicates(t *testing.T) {
	r := &relay{}
	s := r.on(t, repository(t, 0o700))
	put(t, s, "index/lock.exclusive")
	r.edits(func(p []byte) []byte {
		if p[4] != typeName || !strings.Contains(string(p), "lock.exclusive") {
			return p
		}
		entry := string(p[13:])
		return reply(typeName, uint32(p[5])<<24|uint32(p[6])<<16|uint32(p[7])<<8|uint32(p[8]), u32(2*int(p[12]))+entry+entry)
	})
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), []string{"index/lock.exclusive"})
}

// TestMissingForAMoment: a file that can't be opened while it is being replaced is listed, and read.
func TestMissingForAMoment(t *testing.T) {
	r, refused := &relay{}, 0
	s := r.on(t, repository(t, 0o700))
	put(t, s, "index/lock.exclusive")
	r.answers(func(req request) []byte {
		if req.kind == typeOpen && refused < 3 {
			refused++
			return status(req.id, sftpwire.NoSuchFile)
		}
		return nil
	})
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), []string{"index/lock.exclusive"})
	assert.Equal(t, refused, 3)
	refused = 0
	_, _, err = s.Get(t.Context(), "index/lock.exclusive", 1000)
	assert.OK(t, err)
	assert.Equal(t, refused, 3)
}

// TestMovedName: a listing has the names of all scans, and scans until two in a row are the same.
func TestMovedName(t *testing.T) {
	r, scans := &relay{}, 0
	s := r.on(t, repository(t, 0o700))
	put(t, s, "index/lock.a", "index/lock.b")
	r.edits(func(p []byte) []byte {
		if p[4] == typeName && strings.Contains(string(p), "lock.a") {
			if scans++; scans < 3 { // each scan misses another name
				missed := []string{"lock.b", "lock.a"}[scans%2]
				return []byte(strings.ReplaceAll(string(p), missed, "data.x"))
			}
		}
		return p
	})
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), []string{"index/lock.a", "index/lock.b"})
	assert.Equal(t, scans, 4, "scans")
}

// TestForbiddenDirectory: a listing fails if it can't open a directory, or can read but not enter it.
func TestForbiddenDirectory(t *testing.T) {
	for name, refuses := range map[string]func(request) bool{
		"to read":  func(r request) bool { return r.kind == typeOpendir && strings.HasSuffix(r.path(), "/lock.shared") },
		"to enter": func(r request) bool { return r.kind == typeLstat && strings.HasSuffix(r.path(), "/lock.shared/.") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &relay{}
			s := r.on(t, repository(t, 0o700))
			put(t, s, "index/lock.shared/x")
			synctest.Wait()
			opened, closed := 0, r.seen(typeClose) // one of the opened directories, a guess, isn't there
			r.answers(func(req request) []byte {
				if refuses(req) {
					return status(req.id, sftpwire.PermissionDenied)
				}
				if req.kind == typeOpendir {
					opened++
				}
				return nil
			})
			_, err := s.List(t.Context(), "index/lock.", "")
			assert.Says(t, err, store.ErrPermission, "index/lock.shared", name)
			synctest.Wait()
			assert.Equal(t, r.seen(typeClose)-closed, opened-1, "closed handles of a listing that failed")
		})
	}
}

// TestSkippedDirectory: a listing shows a directory that it isn't permitted to open, to enter or to read as one object,
// if the caller ignores all keys below it. It fails for any other directory, and after any other error.
func TestSkippedDirectory(t *testing.T) {
	const lost = "index/lock.shared/lost/"
	for name, c := range map[string]struct {
		prefix  string
		refuses func(request) bool
		keys    []string
	}{
		"to open": {"index/lock.", func(r request) bool { return r.kind == typeOpendir && strings.HasSuffix(r.path(), "/lost") },
			[]string{"index/lock.shared/lost-x", lost, "index/lock.shared/lost0"}},
		"to enter": {"index/lock.", func(r request) bool { return r.kind == typeLstat && strings.HasSuffix(r.path(), "/lost/.") },
			[]string{"index/lock.shared/lost-x", lost, "index/lock.shared/lost0"}},
		"to read": {lost, func(r request) bool { return r.kind == typeReaddir }, []string{lost}},
	} {
		for _, numbers := range []*numbered{nil, {given: map[string]string{}}} {
			synctest.Test(t, func(t *testing.T) {
				var refusal atomic.Int64
				r := &relay{numbered: numbers, answer: func(req request) []byte {
					if code := refusal.Load(); code != 0 && c.refuses(req) {
						return status(req.id, sftpwire.Code(code))
					}
					return nil
				}}
				s := r.on(t, repository(t, 0o700))
				put(t, s, "index/lock.shared/lost-x", lost+"x", "index/lock.shared/lost0")
				lists := func(code sftpwire.Code, skipped string) (store.Page, error) {
					refusal.Store(int64(code))
					return s.List(store.Skipping(t.Context(), func(folder string) bool { return folder == skipped }), c.prefix, "")
				}
				page, err := lists(sftpwire.PermissionDenied, lost)
				assert.OK(t, err)
				assert.Equal(t, keys(page), c.keys, name)
				for _, other := range []string{"", "index/lock.shared/", lost + "x/"} {
					_, err = lists(sftpwire.PermissionDenied, other)
					assert.Says(t, err, store.ErrPermission, "index/lock.shared/lost", name)
				}
				if name != "to enter" { // the look inside has only this answer
					_, err = lists(sftpwire.BadMessage, lost)
					assert.Is(t, err, sftpwire.BadMessage, name)
				}
			})
		}
	}
}

// TestDamagedDirectory: a listing fails if a directory can't be opened or looked at, or if a file is in its place.
func TestDamagedDirectory(t *testing.T) {
	root := repository(t, 0o700)
	put(t, inGo.on(t, root), "index/lock.shared/x")
	for name, kinds := range map[string][]byte{"open": {typeOpendir}, "open, look": {typeOpendir, typeLstat}, "read": {typeReaddir}} {
		r := &relay{answer: func(req request) []byte {
			if slices.Contains(kinds, req.kind) && (req.kind == typeReaddir || strings.HasSuffix(req.path(), "/lock.shared")) {
				return status(req.id, sftpwire.Failure)
			}
			return nil
		}}
		s := r.on(t, root)
		_, err := s.List(t.Context(), "index/lock.", "")
		assert.Is(t, err, sftpwire.Failure, name)
	}
	assert.OK(t, os.RemoveAll(filepath.Join(root, "index")))
	s := inGo.on(t, root)
	put(t, s, "index")
	_, err := s.List(t.Context(), "index/lock.", "")
	assert.Is(t, err, store.ErrIrregular)
}

// TestManyFolders: a listing opens only so many directories at once.
func TestManyFolders(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	open, most := 0, 0
	var want []string
	for i := range 5 * maxOpen {
		key := fmt.Sprintf("index/locks/%04d/lock.exclusive", i)
		want = append(want, key)
		assert.OK(t, os.MkdirAll(filepath.Join(root, filepath.Dir(key)), 0o700))
		assert.OK(t, os.WriteFile(filepath.Join(root, key), nil, 0o600))
	}
	r.answers(func(req request) []byte {
		switch req.kind {
		case typeOpen, typeOpendir:
			open++
		case typeClose:
			open--
		}
		most = max(open, most)
		return nil
	})
	p, err := s.List(t.Context(), "index/lock", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), want)
	assert.That(t, most <= 3*maxOpen, "%d open files", most)
}

// TestClock: a page's time is the server's, once the connection has put something. It is unknown if the server looked at the file before it wrote.
func TestClock(t *testing.T) {
	r := &relay{}
	s := r.on(t, repository(t, 0o700))
	early := false
	r.answers(func(req request) []byte {
		if req.kind != typeFstat {
			return nil
		}
		size := 7 + r.seen(typeWrite)
		if early {
			size = 0
		}
		return reply(typeAttrs, req.id, u32(sftpwire.HasSize|sftpwire.HasPerm|sftpwire.HasTimes)+u32(0)+u32(size)+u32(sftpwire.KindRegular|0o600)+u32(7)+u32(1700000000))
	})
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, p.Now, time.Time{}, "before the first put")
	put(t, s, "index/lock.exclusive")
	p, err = s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, p.Now, time.Unix(1700000000, 0))
	early = true
	p, err = s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, p.Now, time.Time{})
}

// TestSweep: a deletion removes the temporary files that an earlier listing has seen, after a day.
func TestSweep(t *testing.T) {
	for age, left := range map[time.Duration][]string{
		23 * time.Hour: {"index/", "index/.repolock-x.tmp", "index/.repolock-y.tmp/", "index/other.tmp"},
		25 * time.Hour: {"index/", "index/other.tmp"},
	} {
		root := repository(t, 0o700)
		s := inGo.on(t, root)
		put(t, s, "index/lock.exclusive")
		dir := filepath.Join(root, "index")
		assert.OK(t, os.Mkdir(filepath.Join(dir, ".repolock-y.tmp"), 0o700))
		for _, name := range []string{".repolock-x.tmp", "other.tmp"} {
			assert.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		for _, name := range []string{".repolock-x.tmp", ".repolock-y.tmp", "other.tmp"} {
			assert.OK(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(-age)))
		}
		p, err := s.List(t.Context(), "index/", "")
		assert.OK(t, err)
		assert.Equal(t, keys(p), []string{"index/lock.exclusive", "index/other.tmp"})
		assert.OK(t, s.Delete(t.Context(), "index/lock.exclusive"))
		has(t, root, left...)
	}
}

// TestHasOther: a file whose key doesn't begin with the prefix is found, wherever it is.
func TestHasOther(t *testing.T) {
	for _, c := range []struct {
		paths []string // a folder's ends with a slash
		other bool
	}{
		{nil, false},
		{[]string{"index/lock.exclusive", "index/lock.shared/x", "index/locks/n/lock.shared/x", "index/lock-fence"}, false},
		{[]string{"index/", "data/00/", ".repolock-x.tmp", "data/.repolock-y.tmp/z"}, false},
		{[]string{"config"}, true},
		{[]string{"index/lock.exclusive", "index/loc"}, true},
		{[]string{"data/00/", "data/ff/x"}, true},
		{[]string{"lock.exclusive"}, true},
	} {
		root := repository(t, 0o700)
		for _, path := range c.paths {
			full := filepath.Join(root, path)
			assert.OK(t, os.MkdirAll(filepath.Dir(full), 0o700))
			if strings.HasSuffix(path, "/") {
				assert.OK(t, os.MkdirAll(full, 0o700))
			} else {
				assert.OK(t, os.WriteFile(full, nil, 0o600))
			}
		}
		found, err := inGo.on(t, root).HasOther(t.Context(), "index/lock")
		assert.That(t, err == nil && found == c.other, "%q: %t, %v", c.paths, found, err)
	}
}

// TestPrune: a deletion removes the empty directories above the objects, except those that other programs expect.
func TestPrune(t *testing.T) {
	root := repository(t, 0o700)
	s := inGo.on(t, root)
	keys := []string{"index/lock.shared/x", "index/locks/a/lock.shared/x", "index/locks/b/lock.exclusive", "made/m/x"}
	put(t, s, keys...)
	assert.OK(t, os.MkdirAll(filepath.Join(root, "data/00"), 0o700))
	put(t, s, "data/00/x")
	deleted, err := s.DeleteAll(t.Context(), append(keys, "data/00/x", files.NewTemp()))
	assert.OK(t, err)
	assert.Equal(t, deleted, []bool{true, true, true, true, true, false})
	has(t, root, "data/", "data/00/", "index/", "index/lock.shared/")
}
