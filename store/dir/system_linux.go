package dir

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/store/internal/files"
)

// late has the file systems that show other machines' files too late to hold locks, each with the text of the error.
// rclone's listings are up to 5 minutes old, and our own writes don't change that. davfs2 sends a file 10 s after it
// was closed. Until then other machines see an empty file, which means that the lock was released.
var late = map[string]string{
	"rclone": "shows the locks of other machines minutes late",
	"davfs2": "shows other machines an empty file for 10 s in place of a lock",
}

// mountType returns the type of a file's file system, or the program that serves it. It returns "" if neither is known.
// A file system above a mount of rclone (bindfs) has the type rclone, too.
func mountType(f *os.File) string {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	_ = unix.Fstatfs(int(f.Fd()), &fs)              // without it fs looks like no mount of rclone
	table, _ := os.ReadFile("/proc/self/mountinfo") // without it the type isn't known
	return typed(st, fs, string(table))
}

// typed is mountType for a file of these attributes. table is a text of /proc/self/mountinfo.
func typed(st unix.Stat_t, fs unix.Statfs_t, table string) string {
	if files.OfRclone(fs.Files, uint64(fs.Frsize), uint64(st.Size)) {
		return "rclone"
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for line := range strings.Lines(table) {
		mount, system, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) > 2 && fields[2] == device {
			fields = strings.Fields(system) // type, source and options
			return served(fields[0], fields[1])
		}
	}
	return ""
}

// served returns the program that serves a FUSE file system, or else the type. The type names the
// program as fuse.PROGRAM. davfs2 has the type fuse, and a URL as its source.
func served(name, source string) string {
	if name == "fuse" && (strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")) {
		return "davfs2"
	}
	return strings.TrimPrefix(name, "fuse.")
}

// zfsMagic isn't in the headers of Linux.
const zfsMagic = 0x2fc12fc1

// isLocal reports whether the file system is known to be local: only this machine writes to it, this machine's clock
// dates the files, and it has hard links and flock.
func isLocal(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) { // st.Type is signed on some architectures only
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.BCACHEFS_SUPER_MAGIC, zfsMagic, unix.REISERFS_SUPER_MAGIC, unix.NILFS_SUPER_MAGIC,
		unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return false
}

// showsNew reports whether the file system is known to show names in a directory that is open already. btrfs doesn't,
// and neither does overlayfs on btrfs.
func showsNew(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true
	}
	return false
}

func stamps(d *directory) (changed, now time.Time, err error) {
	info, err := d.Lstat(".")
	if err != nil {
		return changed, now, err
	}
	st := info.Sys().(*syscall.Stat_t)
	var coarse unix.Timespec // read it after the time of change, which it must be later than
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &coarse); err != nil {
		return changed, now, err
	}
	return time.Unix(st.Ctim.Unix()), time.Unix(coarse.Unix()), nil
}

// flockHolder describes the holder of a directory's flock. Only Linux shows it. proc_locks(5) has only the locks of our
// pid namespace. On some file systems (btrfs) it shows another device number than stat(2).
func flockHolder(self *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(self.Fd()), &st) != nil {
		return heldByAnother
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return heldByAnother
	}
	pid := flockPID(string(locks), uint64(st.Dev), st.Ino)
	if pid == 0 {
		return heldByAnother
	}
	if pid == os.Getpid() {
		return fmt.Sprintf("is held by this process itself (pid %d)", pid)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("is held by a process that process %d started before it ended", pid)
	}
	return fmt.Sprintf("is held by process %d (%s)", pid, strings.TrimSpace(string(name)))
}

// flockPID returns the holder in a text of proc_locks(5), such as
//
//	3: FLOCK  ADVISORY  WRITE 1397 fe:00:762101 0 EOF
//
// or 0 if there is none. The line of a process that waits for a lock has an arrow after the number.
func flockPID(locks string, dev, ino uint64) int {
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

func renameExclusive(fd int, from, to string) error {
	return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
}

func renameExchange(fd int, a, b string) error {
	return unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
}
