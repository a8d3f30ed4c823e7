//go:build unix

package dir

import (
	"io/fs"
	"os"
	"syscall"
)

// own sets the owner and the group of a new file to those of its folder, and sets its mode,
// whatever the umask: some programs ignore a lock that they can't read. If the system refuses
// a change, the file stays as it is: only root may give files away, and some file systems
// have neither owners nor modes.
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
