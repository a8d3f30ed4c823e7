//go:build unix

package daemon

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Supported returns nil: this system can have keepers.
func Supported() error { return nil }

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// inherited returns the pipe to the starter, and closes all other inherited files. Otherwise the reader
// of a pipe, such as a shell in $(…), would wait for the end of the keeper.
func inherited() (*os.File, error) {
	guard.CloseInherited(4)
	syscall.CloseOnExec(3)
	return os.NewFile(3, "news"), nil
}
