package dir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

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
			next := strings.Trim(left[0], "-")
			left = left[1:]
			if next == "" {
				return nil, nil
			}
			return strings.Split(next, ""), nil
		})
		if s := strings.Join(got, ""); s != test.want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", test.scans, s, err, test.want)
		}
	}
}

func TestSettledEnds(t *testing.T) {
	n := 0
	got, err := settled(func() ([]string, error) {
		n++
		return []string{fmt.Sprintf("%02d", n)}, nil
	})
	if n != maxScans || len(got) != maxScans || err != nil {
		t.Errorf("%d scans, %d names, %v", n, len(got), err)
	}
	for broken := range 3 {
		n := 0
		_, err := settled(func() ([]string, error) {
			if n++; n > broken {
				return nil, os.ErrInvalid
			}
			return []string{fmt.Sprint(n)}, nil
		})
		if !errors.Is(err, os.ErrInvalid) {
			t.Errorf("scan %d failed: %v", broken, err)
		}
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
		const files, lists = 1500, 2
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range files {
			if err := os.WriteFile(filepath.Join(path, fmt.Sprintf("lock.%04d", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var writers sync.WaitGroup
		stop := make(chan struct{})
		for w := range 2 {
			writers.Go(func() { renames(t, path, w, files, stop) })
		}
		single := 0
		for range lists {
			missed, err := scanOnce(t, s, files)
			single += missed
			if err != nil {
				t.Error(err)
			}
			keys := make(map[string]bool)
			n := 0
			for cursor := "-"; cursor != ""; {
				page, err := s.List(t.Context(), "lock.", strings.Trim(cursor, "-"))
				if err != nil {
					t.Error(err)
				}
				for _, obj := range page.Objects {
					keys[obj.Key] = true
					n++
				}
				cursor = page.Next
			}
			if len(keys) != files || n != files {
				t.Errorf("%s: %d of %d are listed, %d with those listed twice", path, len(keys), files, n)
			}
		}
		close(stop)
		writers.Wait()
		t.Logf("%s: single scans missed %d names of %d", path, single, lists*files)
	}
}

func scanOnce(t *testing.T, s *Store, files int) (missed int, err error) {
	root, err := s.open()
	if err != nil {
		return 0, err
	}
	defer root.Close()
	names, err := scan(t.Context(), root, func(string) bool { return true })
	return files - len(set(names)), err
}

// renames writes new files over the old ones, as Put does.
func renames(t *testing.T, path string, w, files int, stop <-chan struct{}) {
	temp := filepath.Join(path, fmt.Sprintf("%s%d%s", tempPrefix, w, tempSuffix))
	for i := w; ; i = (i + 7) % files {
		select {
		case <-stop:
			return
		default:
		}
		if err := os.WriteFile(temp, nil, 0o600); err != nil {
			t.Error(err)
			return
		}
		if err := os.Rename(temp, filepath.Join(path, fmt.Sprintf("lock.%04d", i))); err != nil {
			t.Error(err)
			return
		}
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
		if got := l.wants(key) && l.ahead(key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
}
