//go:build unix

package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
)

// socketDir returns the directory in which keepers listen, and makes it if need be. It belongs
// to this user alone. Only the keeper itself makes the directory of a token's suffix.
func socketDir(suffix string, keeper bool) (string, error) {
	dir, _ := directory(suffix)
	if keeper || suffix == "" {
		return dir, made(dir)
	}
	err := private(dir, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (there is no %s)", ErrGone, dir)
	}
	return dir, err
}

// directory returns the path of socketDir, and whether it is among the temporary files, where
// another user can take the name. It is the first of these in which a socket's path is short
// enough: $XDG_RUNTIME_DIR/repolock, if $XDG_RUNTIME_DIR is the user's and there is no suffix;
// repolock-UID in the directory for temporary files; repolock-UID in /tmp.
func directory(suffix string) (dir string, temporary bool) {
	uid := os.Geteuid()
	ours := "repolock-" + strconv.Itoa(uid) + suffix
	// After su or sudo the variable can still name another user's directory.
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

// made makes a directory if need be. It returns an error unless the directory is private.
func made(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return unmade(err)
	}
	unfit := private(dir, os.Geteuid())
	if err == nil && unfit != nil {
		_ = os.Remove(dir)
	}
	return unfit
}

// newSuffix returns a token's suffix if another user has taken the name without one, else "".
func newSuffix() string {
	if dir, temporary := directory(""); !temporary || made(dir) == nil {
		return ""
	}
	return "." + rand.Text()[:suffixLength]
}

// lastResort has a short path on every system; a variable for tests.
var lastResort = "/tmp"

// maxPath is the length of a socket's path that every system allows: unix(7), unix(4).
const maxPath = 103

// fits reports whether the path of a socket in a directory is short enough.
func fits(dir string) bool { return len(dir)+len("/")+tokenLength <= maxPath }

// unmade returns the error of a directory that could not be made or examined.
func unmade(err error) error {
	return fault.Advise(fmt.Errorf("%w: %w", ErrDir, err), "set XDG_RUNTIME_DIR or TMPDIR to a directory of your own")
}

// private returns an error if other users can use a directory or replace it.
func private(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return unmade(err)
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return unmade(err)
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
