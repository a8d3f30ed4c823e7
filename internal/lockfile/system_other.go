//go:build !unix

package lockfile

import (
	"errors"
	"io/fs"
	"os"
)

// No backend supports these systems, because they lack flock. So the functions below only have to compile.

const noFollow = 0

// Owner returns 0.
func Owner(fs.FileInfo) int { return 0 }

// Inode returns 0.
func Inode(fs.FileInfo) uint64 { return 0 }

// Changed returns errors.ErrUnsupported.
func Changed(*os.File) (int64, error) { return 0, errors.ErrUnsupported }

// Errno returns no name and no text.
func Errno(error) (name, text string) { return "", "" }
