package dir

import (
	"os"

	"golang.org/x/sys/unix"
)

// zfsMagic is in no header of Linux itself.
const zfsMagic = 0x2fc12fc1

// isLocal says that only this machine writes to the file system, that its
// clock stamps the files, and that it has hard links and flock.
func isLocal(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) { // signed or not, as the architecture has it
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.BCACHEFS_SUPER_MAGIC, zfsMagic, unix.REISERFS_SUPER_MAGIC, unix.NILFS_SUPER_MAGIC,
		unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return false
}
