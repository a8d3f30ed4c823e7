package dir

import (
	"io/fs"
	"os"
)

// There are no pipes in directories of Windows.
const nonblock = 0

// inode returns 0: a FileInfo of Windows has none.
func inode(fs.FileInfo) uint64 { return 0 }

// sameFileSystem is stricter than its name: it reports whether both are the same directory,
// because a FileInfo of Windows doesn't have the volume.
func sameFileSystem(a, b fs.FileInfo) bool { return os.SameFile(a, b) }
