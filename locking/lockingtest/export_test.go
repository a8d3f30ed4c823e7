package lockingtest

import (
	"io"
	"strings"

	"github.com/repolock/repolock/locking"
)

// Connect returns the client of a backend that Serve serves.
func Connect(out io.Reader, in io.Writer) locking.Backend { return connect(out, in) }

// Rules returns the names of the subtests.
func Rules() (names []string) {
	for _, s := range suite {
		names = append(names, strings.ReplaceAll(s.rule, " ", "_"))
	}
	return names
}
