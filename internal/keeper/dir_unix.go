//go:build unix

package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Dir is where keepers listen, a directory of this user alone. It is the first of these
// in which a socket's path isn't too long: $XDG_RUNTIME_DIR/repolock, if that directory is
// the user's; repolock-UID in the directory for temporary files; and repolock-UID in /tmp.
// It is made if need be.
func Dir() (string, error) {
	dir, _ := directory("")
	return dir, made(dir)
}

// directory returns the path of Dir, and whether it is among the temporary files, where
// another user can take the name. With a suffix it returns that of a token with one.
func directory(suffix string) (dir string, temporary bool) {
	uid := os.Geteuid()
	ours := "repolock-" + strconv.Itoa(uid) + suffix
	// After su or sudo the variable may still name another user's.
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); suffix == "" && filepath.IsAbs(runtime) {
		if info, err := os.Stat(runtime); err == nil && info.IsDir() && owner(info) == uid {
			if in := filepath.Join(runtime, "repolock"); fits(in) {
				return in, false
			}
		}
	}
	if dir = filepath.Join(os.TempDir(), ours); fits(dir) {
		return dir, true
	}
	return filepath.Join(lastResort, ours), true
}

// made makes a directory if need be, and returns an error unless it is private.
func made(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", ErrDir, err)
	}
	unfit := private(dir, os.Geteuid())
	if err == nil && unfit != nil {
		_ = os.Remove(dir)
	}
	return unfit
}

// newSuffix returns one for a token if another user has taken the name of Dir, and else "".
func newSuffix() string {
	if dir, temporary := directory(""); !temporary || made(dir) == nil {
		return ""
	}
	return "." + rand.Text()[:suffixLength]
}

// suffixed returns the directory of a token with a suffix, which only its keeper makes.
func suffixed(suffix string, keeper bool) (string, error) {
	dir, _ := directory(suffix)
	if keeper {
		return dir, made(dir)
	}
	err := private(dir, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (there is no %s)", ErrGone, dir)
	}
	return dir, err
}

// lastResort has a path that is short on every system; a variable for tests.
var lastResort = "/tmp"

// maxPath is how long a socket's path can be on every system: unix(7), unix(4).
const maxPath = 103

// fits reports whether the path of a socket in a directory isn't too long.
func fits(dir string) bool { return len(dir)+len("/")+tokenLength <= maxPath }

// private returns an error if others than the user can have anything in a directory, or
// put another one in its place.
func private(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDir, err)
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDir, err)
	}
	const others = 0o022 // may write
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no directory: remove it", ErrDir, dir)
	case owner(info) != uid:
		return fmt.Errorf("%w: %s belongs to uid %d, and this is uid %d: remove it, or set XDG_RUNTIME_DIR or TMPDIR to a directory of your own", ErrDir, dir, owner(info), uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s may be used by others (%v): chmod 700 it", ErrDir, dir, info.Mode().Perm())
	case owner(parent) != uid && owner(parent) != 0, parent.Mode()&others != 0 && parent.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%w: %s may be replaced by others, who may write to the directory that it is in: set XDG_RUNTIME_DIR or TMPDIR to one of your own", ErrDir, dir)
	}
	return nil
}

func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
