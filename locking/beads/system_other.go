//go:build !unix

package beads

import (
	"errors"
	"io/fs"
	"os"
)

// New refuses these systems, so the functions below only have to compile.
func inode(fs.FileInfo) uint64 { return 0 }

func stamp(*os.File) (int64, error) { return 0, errors.ErrUnsupported }
