package dir

import (
	"errors"
	"os"
)

// rmdir removes nothing: a directory that another process has open would
// linger on Windows, and fail what is put in it. An empty one does no harm.
func rmdir(*os.Root, string) error { return errors.ErrUnsupported }
