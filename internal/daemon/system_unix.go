//go:build unix

package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// socketDir returns the directory for keepers' sockets, which only this user can use. It makes the directory if
// necessary. Only a keeper makes a directory with a suffix.
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

// directory returns the path of socketDir, and whether it is in a directory for temporary files, where another user can
// take the name first. It returns the first of these paths that is short enough for a socket. The first is
// $XDG_RUNTIME_DIR/repolock, if there is no suffix and $XDG_RUNTIME_DIR belongs to this user. The second is
// repolock-UID in the directory for temporary files, and the third is repolock-UID in /tmp.
func directory(suffix string) (dir string, temporary bool) {
	uid := os.Geteuid()
	ours := "repolock-" + strconv.Itoa(uid) + suffix
	// After su or sudo, the variable can still name another user's directory.
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

// made makes a directory if necessary. It returns an error unless the directory is private.
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

// newSuffix returns a new suffix if another user has taken the directory without a suffix, or else "".
func newSuffix() string {
	if dir, temporary := directory(""); !temporary || made(dir) == nil {
		return ""
	}
	return "." + rand.Text()[:suffixLength]
}

// lastResort is a directory whose path is short on every system. It is a variable for tests.
var lastResort = "/tmp"

// maxPath is the longest path of a socket that every system allows: unix(7), unix(4).
const maxPath = 103

// fits reports whether a directory's path is short enough for a socket in it.
func fits(dir string) bool { return len(dir)+len("/")+tokenLength <= maxPath }

// unmade adds advice to the error of a directory that could not be made or examined.
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
	const others = 0o022 // the mode bits that let the group and others write
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no directory: remove it", ErrDir, dir)
	case owner(info) != uid:
		return fmt.Errorf("%w: %s belongs to uid %d, and this is uid %d: remove it, or set XDG_RUNTIME_DIR or TMPDIR to a directory of your own", ErrDir, dir, owner(info), uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: other users can use %s (%v): chmod 700 it", ErrDir, dir, info.Mode().Perm())
	case owner(parent) != uid && owner(parent) != 0, parent.Mode()&others != 0 && parent.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%w: other users can replace %s, because they can write to %s: set XDG_RUNTIME_DIR or TMPDIR to a directory of your own", ErrDir, dir, filepath.Dir(dir))
	}
	return nil
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// Supported returns nil, because this system can have keepers.
func Supported() error { return nil }

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// inherited returns the pipe to the starter, and closes all other inherited files. Otherwise the reader of a pipe, such
// as a shell in $(…), would wait for the end of the keeper.
func inherited() (*os.File, error) {
	guard.CloseInherited(4)
	syscall.CloseOnExec(3)
	return os.NewFile(3, "news"), nil
}
