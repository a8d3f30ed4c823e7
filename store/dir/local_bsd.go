//go:build darwin || freebsd

package dir

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// isLocal reports whether the file system is known to be local, as on Linux.
func isLocal(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	return st.Flags&unix.MNT_LOCAL != 0 && slices.Contains([]string{"apfs", "hfs", "ufs", "zfs", "tmpfs"}, name)
}
