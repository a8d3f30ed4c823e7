//go:build unix

package keeper

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/child"
)

// Supported is an error where there are no keepers.
func Supported() error { return nil }

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// inherited is the pipe to the starter. What else the starter was left is closed: who
// waits for the end of a pipe, such as a shell in $(…), must not wait for a keeper.
func inherited() (*os.File, error) {
	child.CloseInherited()
	syscall.CloseOnExec(3)
	return os.NewFile(3, "news"), nil
}
