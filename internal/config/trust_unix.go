//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/text"
)

// system has the path of the file for all users.
var system = []string{"/etc/repolock/config.toml"}

// trusted refuses a file that other users can change, or replace through a folder or a link on the way to it.
func trusted(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkFile(path, info.Mode().Perm(), owner(info), self()); err != nil {
		return err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return follow(absolute)
}

func owner(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

func self() uint32 { return uint32(os.Geteuid()) }

// checkFile refuses a file that users other than root and self can change.
func checkFile(path string, mode os.FileMode, owner, self uint32) error {
	switch {
	case owner != 0 && owner != self:
		return fmt.Errorf("belongs to user %d, and not to root or to user %d, who runs repolock: the owner could choose another lock", owner, self)
	case mode&0o022 != 0:
		return fmt.Errorf("others may write to it (mode %04o), and could choose another lock: chmod go-w %s", mode, text.Word(path))
	}
	return nil
}

// maxLinks is the largest number of links that the kernel follows.
const maxLinks = 40

// follow resolves a path name by name, as the kernel does, and checks each folder and each link on the way.
func follow(path string) error {
	at, names, links := "/", split(path), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." { // a link contains ".."; its parent was checked before
			at = filepath.Dir(at)
			continue
		}
		if err := checkFolder(at); err != nil {
			return err
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		if who := owner(info); who != 0 && who != self() {
			return fmt.Errorf("user %d owns the link %s on its path, and could change the link's target", who, next)
		}
		if links++; links > maxLinks {
			return errors.New("too many links lead to it")
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(split(target), names...)
	}
	return nil
}

// split returns the names in a path. It keeps "..": after a link, ".." isn't the folder that contains the link.
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// checkFolder refuses a folder in which other users can replace a file.
func checkFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mode, who := info.Mode(), owner(info)
	switch {
	case who != 0 && who != self():
		return fmt.Errorf("user %d owns the folder %s on its path, and could put another file there", who, path)
	case mode.Perm()&0o022 == 0:
		return nil
	case mode&os.ModeSticky != 0:
		return nil // as in /tmp, where users can't rename or delete other users' files
	case errors.Is(unix.Access(path, unix.W_OK), unix.EROFS):
		return nil // a read-only file system, such as a ConfigMap of Kubernetes
	}
	return fmt.Errorf("other users may write to the folder %s on its path (mode %04o), and could put another file there: chmod go-w %s", path, mode.Perm(), text.Word(path))
}
