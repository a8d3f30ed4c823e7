package regular

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/fault"
)

// maxLinks bounds the links that Target follows.
const maxLinks = 40

// Target returns the path of the regular file to which a path leads through links. The file can be
// missing. A rename to that path replaces neither a link nor a device.
func Target(path string) (string, error) {
	if err := Outside(path); err != nil {
		return "", err
	}
	if err := present(path, false); err != nil { // it also follows links without a text, as in /proc/self/fd
		return "", err
	}
	path, err := follow(path, func(string) error { return nil })
	if err != nil {
		return "", err
	}
	return path, present(path, false)
}

// follow returns the path to which a path leads through links. It calls see with each path on the
// way, and returns an error of see at once.
func follow(path string, see func(path string) error) (string, error) {
	for range maxLinks {
		if err := see(path); err != nil {
			return "", err
		}
		in, name := filepath.Split(path) // filepath.Dir would resolve .. before the links
		dir, err := filepath.EvalSymlinks(cmp.Or(in, "."))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, name)
		if err := see(path); err != nil {
			return "", err
		}
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = dir + string(filepath.Separator) + to
		}
		path = to
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// Same reports whether two paths lead to one regular file, which can be missing.
func Same(a, b string) bool {
	var files [2]string
	var infos [2]fs.FileInfo
	for i, path := range [...]string{a, b} {
		target, err := Target(path)
		if err != nil {
			return false
		}
		if files[i], err = filepath.Abs(target); err != nil {
			return false
		}
		infos[i], _ = os.Stat(target)
	}
	return files[0] == files[1] || infos[0] != nil && infos[1] != nil && os.SameFile(infos[0], infos[1])
}

// Outside returns ErrRefused if a path leads into a place of locks of any repository. A file there
// would replace a lock, or look like one.
func Outside(path string) error {
	see := func(path string) error {
		if holdsLocks(path) {
			return fault.New(ErrRefused, "%q is a place of locks: name a file elsewhere", path)
		}
		return nil
	}
	if path == "" {
		return nil
	}
	if err := see(path); err != nil { // the message has the user's path
		return err
	}
	path, err := absolute(path)
	if err != nil {
		return err
	}
	_, err = follow(path, see)
	if errors.Is(err, ErrRefused) {
		return err
	}
	return nil // a later open of this path fails too
}

// holdsLocks reports whether a path has a folder named index and, in it, the name of a lock, of a
// folder of locks, or of a fence. It ignores case, as some file systems do.
func holdsLocks(path string) bool {
	parts := strings.Split(strings.ToLower(filepath.ToSlash(filepath.Clean(path))), "/")
	for i, name := range parts[1:] {
		if parts[i] == "index" && (strings.HasPrefix(name, "lock.") || name == "lock-fence" || name == "locks") {
			return true
		}
	}
	return false
}

// absolute returns an absolute path. It doesn't clean the path, because .. after a link isn't the
// folder of the link. It resolves links in the path of the working directory.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	if filepath.VolumeName(path) != "" || os.IsPathSeparator(path[0]) {
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return dir + string(filepath.Separator) + path, nil
}
