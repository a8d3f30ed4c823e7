//go:build unix

package daemon

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Supported returns an error on systems without keepers.
func Supported() error { return nil }

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// inherited returns the pipe to the starter. It closes all other inherited files: a reader
// of a pipe, such as a shell in $(…), must not wait for a keeper.
func inherited() (*os.File, error) {
	guard.CloseInherited(4)
	syscall.CloseOnExec(3)
	return os.NewFile(3, "news"), nil
}
