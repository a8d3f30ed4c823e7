//go:build unix

package config

import (
	"fmt"
	"os"
	"syscall"
)

// system is the file for everybody.
var system = []string{"/etc/repolock/config.toml"}

// trusted refuses a file that others can change, as ssh does.
func trusted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	return judge(info.Mode().Perm(), owner, uint32(os.Geteuid()))
}

func judge(mode os.FileMode, owner, self uint32) error {
	switch {
	case owner != 0 && owner != self:
		return fmt.Errorf("belongs to user %d, who is neither root nor user %d, who runs this: it says which lock is taken", owner, self)
	case mode&0o022 != 0:
		return fmt.Errorf("others may write to it (mode %04o), and it says which lock is taken: chmod go-w", mode)
	}
	return nil
}
