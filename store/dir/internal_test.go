package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
)

func opened(t *testing.T, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir(), opts)
	assert.OK(t, err)
	return s
}

// counted is a store that counts the scans of each directory. Its objects are links, which are listed
// without being opened.
func counted(t *testing.T, objects int) (s *Store, scans *int) {
	t.Helper()
	s, scans = opened(t, Options{}), new(int)
	s.scan = func(ctx context.Context, d *directory, wanted func(string) bool) ([]string, error) {
		*scans++
		return scan(ctx, d, wanted)
	}
	shared := filepath.Join(s.path, "index/lock.shared")
	assert.OK(t, os.MkdirAll(shared, 0o700))
	for i := range objects {
		assert.OK(t, os.Symlink("nowhere", filepath.Join(shared, fmt.Sprintf("%05d", i))))
	}
	return s, scans
}

func create(t *testing.T, s *Store, key string) {
	t.Helper()
	assert.OK(t, assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{})))
}

// keysFrom returns the keys of a listing from a cursor on, and its cursors.
func keysFrom(t *testing.T, s *Store, cursor string) (keys, cursors []string) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), "index/lock.", cursor)
		assert.OK(t, err)
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if cursor = page.Next; cursor == "" {
			return keys, cursors
		}
		cursors = append(cursors, cursor)
	}
}

// TestOneScanForAListing: however many pages a listing has, each directory is scanned only for
// the first of them.
func TestOneScanForAListing(t *testing.T) {
	s, scans := counted(t, 2*pageSize+1)
	keys, cursors := keysFrom(t, s, "")
	assert.That(t, len(keys) == 2*pageSize+1 && slices.IsSorted(keys), "%d keys", len(keys))
	assert.Equal(t, len(cursors), 2, "cursors")
	assert.Equal(t, *scans, 4, "scans: two directories, each until two scans agree")
	// A page that is asked for again is the same.
	assert.OK(t, assert.Err(s.List(t.Context(), "index/lock.", "")))
	for range 2 {
		page, err := s.List(t.Context(), "index/lock.", cursors[0])
		assert.OK(t, err)
		next, _ := s.scansOf("", page.Next)
		assert.Equal(t, next, page.Objects[pageSize-1].Key, "next")
		assert.Equal(t, len(page.Objects), pageSize, "objects")
	}
}

// TestListingsShowWhatWasPut: a listing that begins after a put shows it, on any page and
// beside any other listings.
func TestListingsShowWhatWasPut(t *testing.T) {
	s, _ := counted(t, pageSize+10)
	list := func(prefix, cursor string) string {
		page, err := s.List(t.Context(), prefix, cursor)
		assert.OK(t, err)
		return page.Next
	}
	shows := func(cursor, key string) {
		t.Helper()
		keys, _ := keysFrom(t, s, cursor)
		assert.That(t, slices.Contains(keys, key), "%s isn't shown", key)
	}
	list("index/lock.", "")
	create(t, s, "index/lock.shared/99990")
	first := list("index/lock.", "") // began before the next put, and a newer one after it
	create(t, s, "index/lock.shared/99991")
	list("index/lock.", "")
	shows(first, "index/lock.shared/99991")

	first = list("index/lock.", "")
	list("index/", "") // another listing in between
	shows(first, "index/lock.shared/99991")
	shows("index/lock.shared/00500", "index/lock.shared/99991") // a cursor that it never returned

	// A younger listing begins after the last scan of an older one, and before its page is there.
	n, counting := 0, s.scan
	s.scan = func(ctx context.Context, d *directory, wanted func(string) bool) ([]string, error) {
		names, err := counting(ctx, d, wanted)
		if n++; n == 4 { // two directories, each until two scans agree
			create(t, s, "index/lock.shared/99992")
			first = list("index/lock.", "")
		}
		return names, err
	}
	list("index/lock.", "")
	shows(first, "index/lock.shared/99992")

	// An object that was deleted since isn't listed, and one that was replaced is.
	first = list("index/lock.", "")
	assert.OK(t, s.Delete(t.Context(), "index/lock.shared/01005"))
	create(t, s, "index/lock.shared/01006")
	keys, _ := keysFrom(t, s, first)
	assert.That(t, !slices.Contains(keys, "index/lock.shared/01005") && slices.Contains(keys, "index/lock.shared/01006"),
		"later pages are of the past")
}

// TestSettled: a scan can miss names. The union of scans that agree has them all.
func TestSettled(t *testing.T) {
	for _, test := range []struct{ scans, want string }{
		{"ab ab", "ab"},
		{"a ab ab", "ab"},
		{"b a ab ab", "ab"},      // each was replaced during one scan
		{"ab b a b b", "ab"},     // a name counts if any scan shows it
		{"aba ab", "ab"},         // a name that moves is seen twice
		{"- - a", ""},            // and two that agree are enough
		{"abc ab ab abc", "abc"}, // opening a deleted one fails
	} {
		left := strings.Fields(test.scans)
		got, err := settled(func() ([]string, error) {
			next := strings.Split(strings.Trim(left[0], "-"), "") // of an empty string, none
			left = left[1:]
			return next, nil
		})
		assert.OK(t, err)
		assert.Equal(t, strings.Join(got, ""), test.want, test.scans)
	}
}

func TestSettledEnds(t *testing.T) {
	n := 0
	got, err := settled(func() ([]string, error) {
		n++
		return []string{fmt.Sprintf("%02d", n)}, nil
	})
	assert.That(t, n == maxScans && len(got) == maxScans && err == nil, "%d scans, %d names, %v", n, len(got), err)
	for broken := range 3 {
		n := 0
		_, err := settled(func() ([]string, error) {
			if n++; n > broken {
				return nil, os.ErrInvalid
			}
			return []string{fmt.Sprint(n)}, nil
		})
		assert.Is(t, err, os.ErrInvalid, "scan %d failed", broken)
	}
}

// TestListUnderRenames overwrites objects as fast as it can while they are listed, in
// directories that take several system calls to read. On ext4 a single scan sees them all; on
// tmpfs (Linux 6.18) most single scans of 3,000 files miss some.
func TestListUnderRenames(t *testing.T) {
	places := []string{t.TempDir()}
	if path, err := os.MkdirTemp("/dev/shm", "repolock-test-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(path) })
		places = append(places, path)
	}
	for _, path := range places {
		const files = 800
		s, err := Open(t.Context(), path, Options{})
		assert.OK(t, err)
		for i := range files {
			assert.OK(t, os.Symlink("nowhere", filepath.Join(path, fmt.Sprintf("lock.%04d", i))))
		}
		var writers sync.WaitGroup
		var stopped atomic.Bool
		for w := range 2 {
			writers.Go(func() { // puts new entries over the old ones, as Put does
				temp := filepath.Join(path, fmt.Sprintf("%s%d%s", tempPrefix, w, tempSuffix))
				for i := w; !stopped.Load(); i = (i + 7) % files {
					err := os.Symlink("nowhere", temp)
					assert.Is(t, errors.Join(err, os.Rename(temp, filepath.Join(path, fmt.Sprintf("lock.%04d", i)))), nil)
				}
			})
		}
		for range rounds.Fewer(4, 1) {
			keys, err := store.Keys(t.Context(), s, "lock.") // each once, in order
			assert.That(t, len(keys) == files && err == nil, "%s: %d of %d are listed, %v", path, len(keys), files, err)
		}
		stopped.Store(true)
		writers.Wait()
	}
}

// TestListRereads: where another machine can write, a listing makes and removes a file in each folder that it reads,
// which shows in the folder's time. On a local file system it writes nothing.
func TestListRereads(t *testing.T) {
	for _, local := range []bool{true, false} {
		s := opened(t, Options{})
		s.local = local
		create(t, s, "index/lock.shared/a")
		past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		folders := []string{s.path + "/index", s.path + "/index/lock.shared"}
		for _, folder := range folders {
			assert.OK(t, os.Chtimes(folder, past, past))
		}
		keys, _ := keysFrom(t, s, "")
		assert.Equal(t, strings.Join(keys, " "), "index/lock.shared/a", "keys")
		for _, folder := range folders {
			info, err := os.Stat(folder)
			assert.That(t, err == nil && info.ModTime().Equal(past) == local, "local %v: %s is of %v, %v", local, folder, info.ModTime(), err)
		}
	}
}

// TestListedAndMissing: where another machine can write, a name that its folder lists isn't missing, although it isn't
// there to be opened. A listing fails.
func TestListedAndMissing(t *testing.T) {
	for _, missing := range []string{"index", "index/lock.shared", "index/lock.shared/a"} {
		s := opened(t, Options{})
		s.local = false
		in, name := filepath.Split(filepath.Join(s.path, missing))
		assert.OK(t, os.MkdirAll(in, 0o700))
		s.scan = func(ctx context.Context, d *directory, wanted func(string) bool) ([]string, error) {
			names, err := scan(ctx, d, wanted)
			if d.path == filepath.Clean(in) && wanted(name) {
				names = append(names, name)
			}
			return names, err
		}
		err := assert.Err(s.List(t.Context(), "index/lock.", ""))
		assert.Says(t, err, err, "is listed, and isn't there to be opened", missing)
	}
}

func TestListReadsOnlyWhereThePrefixIs(t *testing.T) {
	l := listing{prefix: "index/lock.", cursor: "index/lock.shared/5"}
	for key, want := range map[string]bool{
		"index/":              true,
		"index/lock.shared/":  true,
		"index/lock.sharec/":  false, // all before the cursor
		"index/lock.intent/":  false,
		"index/lock.t/":       true,
		"index/packs/":        false,
		"data/":               false,
		"index/lock.shared/5": false,
		"index/lock.shared/6": true,
		"index/other":         false,
	} {
		assert.Equal(t, l.wants(key) && l.ahead(key), want, "%q", key)
	}
}

// TestNow: the kernel stamps files with a clock that advances with the
// timer interrupt, every 10 ms at worst. Page.Now must never be later than that clock,
// although a finer one is; otherwise a file that is put after the list could be older than the
// list. On a file system that isn't local, mod times come from another clock, which this store can't read.
func TestNow(t *testing.T) {
	const interrupt = 10 * time.Millisecond
	var now time.Time
	s := opened(t, Options{Now: func() time.Time { return now }})
	s.local = true // in any file system
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d := time.Duration(0); d < 2*interrupt; d += interrupt / 10 {
		now = start.Add(d)
		page, err := s.List(t.Context(), "", "")
		assert.OK(t, err)
		stamp := now.Truncate(interrupt)
		assert.That(t, !page.Now.After(stamp), "a file is stamped %v before Page.Now", page.Now.Sub(stamp))
		assert.That(t, now.Sub(page.Now) <= time.Second, "it is %v behind", now.Sub(page.Now))
	}
	s.local = false
	page, err := s.List(t.Context(), "", "")
	assert.That(t, err == nil && page.Now.IsZero(), "another clock's: %v, %v", page.Now, err)
}

// TestProperties: a local file system's files are dated by this machine's wall clock, and its conditions
// are kept. Of a network file system neither is known: its flock might bind this machine alone.
func TestProperties(t *testing.T) {
	for _, c := range []struct {
		local, flock      bool
		ifAbsent, ifMatch store.Condition
	}{
		{true, true, store.Kept, store.Kept},
		{true, false, store.Kept, store.Unsupported},
		{false, true, store.Claimed, store.Claimed},
		{false, false, store.Claimed, store.Unsupported},
	} {
		want := store.Properties{
			Name: "dir", IfAbsent: c.ifAbsent, IfMatch: c.ifMatch, DeleteIfMatch: c.ifMatch, StoreClock: c.local, MachineClock: c.local,
		}
		assert.Equal(t, (&Store{local: c.local, flock: c.flock}).Properties(), want)
	}
}

func inRoot(t *testing.T) *directory {
	t.Helper()
	path := t.TempDir()
	root, err := os.OpenRoot(path)
	assert.OK(t, err)
	t.Cleanup(func() { root.Close() })
	assert.OK(t, root.WriteFile("temp", []byte("body"), 0o600))
	return &directory{root, path}
}

// TestLinkAnsweredTwice: an NFS server's answer is lost, and the link that the client then
// requests again is its own.
func TestLinkAnsweredTwice(t *testing.T) {
	root := inRoot(t)
	assert.OK(t, root.Link("temp", "k"))
	assert.Is(t, link(root, "temp", "k"), nil, "its own")
	assert.OK(t, root.root.WriteFile("temp", nil, 0o600))
	assert.Is(t, link(root, "temp", "k"), store.ErrPrecondition, "another's")
}

// TestRenameNoReplace covers file systems without hard links. A test can't have a real one.
func TestRenameNoReplace(t *testing.T) {
	root := inRoot(t)
	err := renameNoReplace(root, "temp", "k")
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		assert.Is(t, err, store.ErrConditionUnsupported)
		return
	}
	assert.OK(t, err)
	assert.OK(t, root.root.WriteFile("temp", []byte("another"), 0o600))
	assert.Is(t, renameNoReplace(root, "temp", "k"), store.ErrPrecondition)
	body, err := root.root.ReadFile("k")
	assert.That(t, err == nil && string(body) == "body", "%q, %v", body, err)
}

var sink store.Object

// BenchmarkPut measures the table in docs/decisions/0001-fsync.md.
func BenchmarkPut(b *testing.B) {
	for name, opts := range map[string]store.PutOptions{"plain": {}, "durable": {Durable: true}} {
		for _, over := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/over=%v", name, over), func(b *testing.B) {
				s, err := Open(b.Context(), b.TempDir(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				body := make([]byte, 600)
				for i := 0; b.Loop(); i++ {
					if over {
						i = 0
					}
					key := fmt.Sprintf("index/lock.shared/%d", i)
					if sink, err = s.Put(b.Context(), key, body, opts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
