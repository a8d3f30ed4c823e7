//go:build unix

package regular

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOutside: no file is written in a place of locks, through whatever link and from whatever
// working directory. It isn't created either. Reading such a file is allowed, and so are similar names.
func TestOutside(t *testing.T) {
	top := t.TempDir()
	t.Chdir(top)
	if err := errors.Join(
		os.MkdirAll("repo/index/lock.shared", 0o700), os.MkdirAll("repo/index/locks/photos", 0o700), os.Mkdir("other", 0o700),
		os.WriteFile("repo/index/lock.exclusive", []byte("a lock"), 0o600),
		os.Symlink("repo/index/lock.exclusive", "link"), os.Symlink("link", "twice"), os.Symlink("repo/index/lock.shared/new", "dangling"),
		os.Symlink("repo/index/lock.shared", "dir"), os.Symlink("repo/index/lock.shared", "here"),
		os.MkdirAll("fast", 0o700), os.Mkdir("moved", 0o700), os.Symlink("../fast", "moved/index"),
	); err != nil {
		t.Fatal(err)
	}
	uses := map[string]func(string) error{
		"append":   func(path string) error { f, err := Append(path); return errors.Join(err, closed(f)) },
		"create":   func(path string) error { f, err := Create(path); return errors.Join(err, closed(f)) },
		"target":   func(path string) error { _, err := Target(path); return err },
		"writable": Writable,
		"outside":  Outside,
	}
	refused := func(in string, paths ...string) {
		t.Helper()
		t.Chdir(filepath.Join(top, in))
		for _, path := range paths {
			_, before := os.Lstat(path)
			for name, use := range uses {
				var place *PlaceError
				if err := use(path); !errors.As(err, &place) {
					t.Errorf("%s %s in %q: %v", name, path, in, err)
				}
			}
			if _, err := os.Lstat(path); (err == nil) != (before == nil) {
				t.Errorf("%s was created", path)
			}
		}
	}
	refused("", "repo/index/lock.exclusive", "repo/index/lock.shared/x", "repo/index/lock.intent/x", "repo/index/lock.intent", "repo/index/lock-fence",
		"repo/index/locks", "repo/index/locks/photos/lock.exclusive", "repo/index/locks/photos/lock.shared/x", filepath.Join(top, "repo/index/lock.exclusive"),
		"link", "twice", "dangling", "dir/x", "dir/../lock.exclusive", "other/../repo//index/./lock.exclusive", "repo/Index/LOCK.exclusive",
		"moved/index/lock.exclusive")
	refused("repo/index", "lock.exclusive", "./lock.shared/x", "lock-fence")
	refused("here", "x", "../lock.exclusive") // $PWD has the link

	t.Chdir(top)
	for _, path := range []string{"log", "repo/log", "repo/index/log", "repo/index/locksmith", "repo/lock.exclusive", "other/lock.shared", "repo/index/lock.shared/../../up"} {
		for name, use := range uses {
			if err := use(path); err != nil {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
	if f, err := Open("repo/index/lock.exclusive"); err != nil {
		t.Errorf("reading: %v", err)
	} else {
		f.Close()
	}
	if text, err := os.ReadFile("repo/index/lock.exclusive"); err != nil || string(text) != "a lock" {
		t.Errorf("the lock is %q, %v", text, err)
	}
}

func closed(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
