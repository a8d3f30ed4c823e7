//go:build !unix

package lockfile

import (
	"errors"
	"io/fs"
	"os"
)

// No backend supports these systems, because they lack flock. So the functions below only have to compile.

const noFollow = 0

func Owner(fs.FileInfo) int { return 0 }

func Inode(fs.FileInfo) uint64 { return 0 }

func Changed(*os.File) (int64, error) { return 0, errors.ErrUnsupported }

func Errno(error) (name, text string) { return "", "" }
