package lockingtest

import (
	"io"

	"github.com/repolock/repolock/locking"
)

// Connect returns the client of a backend that Serve serves.
func Connect(out io.Reader, in io.Writer) locking.Backend { return connect(out, in) }
