package dir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

func opened(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir())
	assert.OK(t, err)
	return s
}

func create(t *testing.T, s *Store, key string) {
	t.Helper()
	assert.OK(t, assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{})))
}

// keys returns the keys of a listing.
func keys(t *testing.T, s *Store) []string {
	t.Helper()
	keys, err := store.Keys(t.Context(), s, "index/lock.")
	assert.OK(t, err)
	return keys
}

// TestOnlyForbiddenIsSkipped: a listing that fails for another reason than a permission skips no directory.
func TestOnlyForbiddenIsSkipped(t *testing.T) {
	s := opened(t)
	create(t, s, "index/lock.shared/lost/x")
	ctx := store.Skipping(t.Context(), func(folder string) bool { return folder == "index/lock.shared/lost/" })
	for _, fault := range []error{syscall.EIO, syscall.ESTALE, syscall.ENOTDIR, syscall.EMFILE, store.ErrListing, context.Canceled, syscall.EACCES, syscall.EPERM} {
		s.scan = func(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
			if filepath.Base(d.path) == "lost" {
				return nil, cant("list", d.path, fault)
			}
			return scan(ctx, d, wanted)
		}
		page, err := s.List(ctx, "index/lock.", "")
		skipped := len(page.Objects) == 1 && page.Objects[0] == store.Skipped("index/lock.shared/lost/")
		switch fault {
		case syscall.EACCES, syscall.EPERM:
			assert.That(t, err == nil && skipped, "%v: %+v, %v", fault, page.Objects, err)
		case syscall.ENOTDIR: // a file has replaced it
			assert.OK(t, err)
		default:
			assert.Is(t, err, fault)
		}
	}
}

// TestNames: a scan can miss names. The union of the scans has them all, once two scans in a row agree.
func TestNames(t *testing.T) {
	many := strings.Split("a b c d e f g h i j k l m n o p q r", " ")
	for _, test := range []struct {
		scans string
		want  string
	}{
		{"ab ab", "ab"},
		{"ab ba", "ab"},
		{"a ab ab", "ab"},
		{"b a ab ab", "ab"},      // each was replaced during one scan
		{"ab b a b b", "ab"},     // a name counts if any scan shows it
		{"aba ab", "ab"},         // a scan sees a name twice that moves
		{"- - a", ""},            // two that agree are enough
		{"abc ab ab abc", "abc"}, // a deleted name can't be opened later
		{strings.Join(many, " "), strings.Join(many[:files.MaxScans], "")}, // they never agree
		{"! ab", "fails"},
		{"ab ! ab", "fails"},
		{"ab a !", "fails"},
	} {
		left := strings.Fields(test.scans)
		s := &Store{local: true, scan: func(context.Context, *directory, files.Wanted) ([]string, error) {
			next := left[0]
			left = left[1:]
			if next == "!" {
				return nil, os.ErrInvalid
			}
			return strings.Split(strings.Trim(next, "-"), ""), nil // of an empty string, none
		}}
		got, err := s.names(t.Context(), nil, nil)
		if test.want == "fails" {
			assert.Is(t, err, os.ErrInvalid, test.scans)
			continue
		}
		assert.OK(t, err)
		assert.Equal(t, strings.Join(got, ""), test.want, test.scans)
	}
}

// TestListRereads: on a file system that isn't local, a listing makes and removes a file in each folder,
// which changes the folder's time. On a local file system it writes nothing.
func TestListRereads(t *testing.T) {
	for _, local := range []bool{true, false} {
		s := opened(t)
		s.local = local
		create(t, s, "index/lock.shared/a")
		past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		folders := []string{s.path + "/index", s.path + "/index/lock.shared"}
		for _, folder := range folders {
			assert.OK(t, os.Chtimes(folder, past, past))
		}
		assert.Equal(t, keys(t, s), []string{"index/lock.shared/a"}, "keys")
		for _, folder := range folders {
			info, err := os.Stat(folder)
			assert.That(t, err == nil && info.ModTime().Equal(past) == local, "local %v: %s is of %v, %v", local, folder, info.ModTime(), err)
		}
	}
}

// TestListedAndMissing: on a file system that isn't local, a listing fails if a folder lists a name that
// can't be found.
func TestListedAndMissing(t *testing.T) {
	for _, missing := range []string{"index", "index/lock.shared", "index/lock.shared/a"} {
		s := opened(t)
		s.local = false
		in, name := filepath.Split(filepath.Join(s.path, missing))
		assert.OK(t, os.MkdirAll(in, 0o700))
		s.scan = func(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
			names, err := scan(ctx, d, wanted)
			if file, _ := wanted(name); file && d.path == filepath.Clean(in) {
				names = append(names, name)
			}
			return names, err
		}
		err := assert.Err(s.List(t.Context(), "index/lock.", ""))
		assert.Says(t, err, err, "is listed, but can't be opened because it is missing", missing)
	}
}

// TestListReadsOnlyWhereThePrefixIs: a name is looked at only if the prefix can be in it or below it.
func TestListReadsOnlyWhereThePrefixIs(t *testing.T) {
	for _, c := range []struct {
		at, name     string
		file, folder bool
	}{
		{"", "index", false, true},
		{"", "index0", false, false},
		{"", "ind", false, false},
		{"", "data", false, false},
		{"index/", "lock.shared", true, true},
		{"index/", "lock", false, false},
		{"index/", "packs", false, false},
		{"index/lock.shared/", "5", true, true},
	} {
		file, folder := files.Below("index/lock.", c.at)(c.name)
		assert.That(t, file == c.file && folder == c.folder, "%q in %q: file %t, folder %t", c.name, c.at, file, folder)
	}
}

// TestNow: the kernel stamps files with a clock that advances with the timer interrupt, every 10 ms at
// worst. Page.Now must never be later than that clock, because a later put must not look older than the
// listing. On a file system that isn't local, another clock stamps files, so Page.Now is zero.
func TestNow(t *testing.T) {
	const interrupt = 10 * time.Millisecond
	var now time.Time
	s := opened(t)
	s.now = func() time.Time { return now }
	s.local = true // even if the temporary directory isn't
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

// TestProperties: on a local file system this machine's clock stamps files, and conditions are kept. On
// any other neither is known, because its flock might bind only this machine.
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

// TestLinkAnsweredTwice: if an NFS server's answer is lost and the client repeats the link, the existing
// link is the client's own.
func TestLinkAnsweredTwice(t *testing.T) {
	root := inRoot(t)
	assert.OK(t, root.Link("temp", "k"))
	assert.Is(t, link(root, "temp", "k"), nil, "its own")
	assert.OK(t, root.root.WriteFile("temp", nil, 0o600))
	assert.Is(t, link(root, "temp", "k"), store.ErrPrecondition, "another's")
}

// TestRenameNoReplace: a rename on a file system without hard links replaces no file.
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

// BenchmarkPut measures the table in docs/evidence/decisions/0001-fsync.md.
func BenchmarkPut(b *testing.B) {
	for name, opts := range map[string]store.PutOptions{"plain": {}, "durable": {Durable: true}} {
		for _, over := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/over=%v", name, over), func(b *testing.B) {
				s, err := Open(b.Context(), b.TempDir())
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

// BenchmarkList lists the locks beside 100,000 index files of the repository, and 10,000 locks.
func BenchmarkList(b *testing.B) {
	for name, n := range map[string]struct{ locks, others int }{"index files": {1, 100_000}, "locks": {10_000, 0}} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.Context(), b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			for dir, n := range map[string]int{"index": n.others, "index/lock.shared": n.locks} {
				if err := os.MkdirAll(filepath.Join(s.path, dir), 0o700); err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if err := os.WriteFile(filepath.Join(s.path, dir, fmt.Sprintf("%064x", i)), make([]byte, 600), 0o600); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if page, err := s.List(b.Context(), "index/lock.", ""); err != nil || len(page.Objects) != n.locks {
					b.Fatal(len(page.Objects), err)
				}
			}
		})
	}
}
