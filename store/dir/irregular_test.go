//go:build unix

package dir_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestListedIsDeletable: Delete can remove anything that List shows, and nothing beside it.
func TestListedIsDeletable(t *testing.T) {
	create := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	link := func(target string) func(string) error {
		return func(path string) error { return os.Symlink(target, path) }
	}
	for name, make := range map[string]func(path string) error{
		`a\b`: create, "not UTF-8 \xff": create, "a\nb": create, "-": create, strings.Repeat("é", 120): create,
		"pipe":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dangling": link("nowhere"), "link": link("../../kept"), "link to folder": link(".."),
		"folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"odd\xff": func(path string) error { return os.MkdirAll(path+`/a\b/c`, 0o700) },
		`x\`: func(path string) error {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return create(filepath.Join(path, "y"))
		},
	} {
		s, path := fresh(t)
		put(t, s, "kept", "body")
		put(t, s, "index/lock.shared/kept", "body")
		if err := make(filepath.Join(path, "index/lock.shared", name)); err != nil {
			t.Logf("this file system doesn't take %q: %v", name, err)
			continue
		}
		page, err := s.List(t.Context(), "index/", "")
		keys := page.Folders
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if err != nil || len(keys) != 2 {
			t.Errorf("%q: listed %q, %v", name, keys, err)
		}
		for _, key := range slices.DeleteFunc(keys, func(key string) bool { return key == "index/lock.shared/kept" }) {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("delete %q: %v", key, err)
			}
		}
		if got := files(t, path); got != "index/ index/lock.shared/ index/lock.shared/kept kept" {
			t.Errorf("%q: left %q", name, got)
		}
	}
}

// TestDeleteStaysInside: a key that List can't show is refused, and a folder that isn't empty
// stays.
func TestDeleteStaysInside(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	for _, key := range []string{"", "/", "a//", "a/../a/b", "../x", "a/.", "./a/b", "a/b\x00", ".repolock-x.tmp/"} {
		if err := s.Delete(t.Context(), key); !isInvalid(err) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if err := s.Delete(t.Context(), "a/"); err == nil {
		t.Error("a folder was deleted that isn't empty")
	}
	for _, key := range []string{"a/b/", "a/c/", "c/", `a/b\c`, "\xff"} {
		if err := s.Delete(t.Context(), key); !isInvalid(err) {
			t.Errorf("delete %q, which isn't there: %v", key, err)
		}
	}
	if got := files(t, path); got != "a/ a/b" {
		t.Errorf("left %q", got)
	}
}

// TestFolders: List shows an empty directory under the prefix.
func TestFolders(t *testing.T) {
	s, path := fresh(t)
	for _, dir := range []string{"index/lock.exclusive", "index/lock.shared", "index/other/x"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "index/lock.shared/x", "")
	for prefix, want := range map[string]string{
		"": "index/lock.exclusive/ index/other/x/", "index/lock.": "index/lock.exclusive/",
		"index/lock.exclusive/": "index/lock.exclusive/", "index/lock.exclusive/x": "", "index/lock.shared/y": "",
	} {
		page, err := s.List(t.Context(), prefix, "")
		if got := strings.Join(page.Folders, " "); err != nil || got != want {
			t.Errorf("under %q: %q, %v", prefix, got, err)
		}
	}
	empty := at(t, t.TempDir())
	if page, err := empty.List(t.Context(), "", ""); err != nil || len(page.Folders) > 0 {
		t.Errorf("the repository itself: %q, %v", page.Folders, err)
	}
}

func isInvalid(err error) bool {
	return err != nil && strings.Contains(err.Error(), store.ErrInvalidKey.Error())
}
