package daemon

import (
	"errors"
	"os"
	"os/exec"
)

var errUnsupported = errors.New("Windows has no keepers: use repolock run")

// Supported returns an error, because this system can't have keepers.
func Supported() error { return errUnsupported }

func newSuffix() string { return "" }

func socketDir(string, bool) (string, error) { return "", errUnsupported }

func detach(*exec.Cmd) {}

func inherited() (*os.File, error) { return nil, errUnsupported }
