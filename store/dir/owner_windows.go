package dir

import (
	"io/fs"
	"os"
)

// own does nothing: here what is made inherits the rights of its folder.
func own(*os.File, fs.FileInfo, fs.FileMode) {}
