package dir

import (
	"errors"
	"fmt"
	"os"
)

// rmdir removes nothing: a directory that another process has open would
// linger on Windows, and fail what is put in it. An empty one does no harm.
func rmdir(*os.Root, string) error {
	return fmt.Errorf("%w: remove this directory by hand", errors.ErrUnsupported)
}
