//go:build unix

package dir

import (
	"io/fs"
	"os"
	"syscall"
)

// own gives what was just made the owner and the group of the folder that it is in, and a
// mode, whatever the umask: a lock that the owner of the repository or its group can't read
// is none to some programs. What the system refuses stays as it was made: only root may give
// files away, and some file systems have neither owners nor modes.
func own(f *os.File, folder fs.FileInfo, mode fs.FileMode) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	above, ok1 := folder.Sys().(*syscall.Stat_t)
	if ok && ok1 && is.Gid != above.Gid {
		_ = f.Chown(-1, int(above.Gid))
	}
	if ok && ok1 && is.Uid == 0 && above.Uid != 0 && os.Geteuid() == 0 {
		_ = f.Chown(int(above.Uid), -1)
	}
	if info.Mode()&(fs.ModePerm|fs.ModeSetgid) != mode {
		_ = f.Chmod(mode)
	}
}
