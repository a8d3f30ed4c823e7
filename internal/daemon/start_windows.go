package daemon

import (
	"errors"
	"os"
	"os/exec"
)

var errUnsupported = errors.New("there are no keepers on this system")

// Supported returns an error on systems without keepers.
func Supported() error { return errUnsupported }

func newSuffix() string { return "" }

func socketDir(string, bool) (string, error) { return "", errUnsupported }

func detach(*exec.Cmd) {}

func inherited() (*os.File, error) { return nil, errUnsupported }
