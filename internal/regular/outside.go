package regular

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/fault"
)

// Outside returns ErrRefused if a path leads into a place of locks, of whatever repository. A file
// there replaces a lock, or is taken for one.
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
	if err := see(path); err != nil { // name it as the user did
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
	return nil // a path that can't be followed can't be opened either
}

// holdsLocks reports whether a path has the folder of an index and, in it, the name of a lock, of a
// folder of locks, or of their fence. Some file systems don't tell upper case from lower case.
func holdsLocks(path string) bool {
	parts := strings.Split(strings.ToLower(filepath.ToSlash(filepath.Clean(path))), "/")
	for i, name := range parts[1:] {
		if parts[i] == "index" && (strings.HasPrefix(name, "lock.") || name == "lock-fence" || name == "locks") {
			return true
		}
	}
	return false
}

// absolute returns an absolute path without taking .. of a link away. The working directory can be
// known by a path with links.
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
