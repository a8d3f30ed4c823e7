package dir

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// late are the file systems that show another machine's files late, whatever this machine does: they
// can't hold locks. rclone's listings are of up to 5 minutes ago, and our own writes don't end that.
var late = []string{"fuse.rclone"}

// mountType returns the type of the file system that a file is on, as in proc_pid_mountinfo(5), or "".
func mountType(f *os.File) string {
	var st unix.Stat_t
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for line := range strings.Lines(string(table)) {
		mount, system, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) > 2 && fields[2] == device {
			name, _, _ := strings.Cut(system, " ")
			return name
		}
	}
	return ""
}

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
