package dir

import (
	"io/fs"
	"os"
)

// There are no pipes in directories of Windows.
const nonblock = 0

// inode isn't told by a FileInfo of Windows.
func inode(fs.FileInfo) uint64 { return 0 }

// sameFileSystem is stricter here than its name: it has to be the same
// directory, since the volume alone isn't told.
func sameFileSystem(a, b fs.FileInfo) bool { return os.SameFile(a, b) }
