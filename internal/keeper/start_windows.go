package keeper

import (
	"errors"
	"os"
	"os/exec"
)

var errUnsupported = errors.New("there are no keepers on this system")

// Supported is an error where there are no keepers.
func Supported() error { return errUnsupported }

// Dir is where keepers listen, and nowhere.
func Dir() (string, error) { return "", errUnsupported }

func newSuffix() string { return "" }

func suffixed(string, bool) (string, error) { return "", errUnsupported }

func detach(*exec.Cmd) {}

func inherited() (*os.File, error) { return nil, errUnsupported }
