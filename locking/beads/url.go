package beads

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scheme is that of the URLs that Parse accepts.
const Scheme = "beads"

// Target is what a URL names.
type Target struct {
	// Dir is the absolute path of the .beads directory.
	Dir string
}

// Parse parses beads:DIR. DIR is a .beads directory, or the directory that has one: the name
// decides, and Parse reads no file. A relative DIR is one of the working directory. Its characters
// stand for themselves. Parse refuses those that begin a query or a fragment of a URL, and those
// that aren't printable.
func Parse(raw string) (Target, error) {
	scheme, dir, ok := strings.Cut(raw, ":")
	switch {
	case !ok || !strings.EqualFold(scheme, Scheme):
		return Target{}, invalid("it must begin with beads:")
	case dir == "":
		return Target{}, invalid("it names no directory: beads:.beads is one")
	case strings.HasPrefix(dir, "//"):
		return Target{}, invalid("it has no host: write beads:/DIR")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Target{}, invalid("the working directory is unknown: %v", err)
	}
	if i := strings.IndexAny(dir, "?#"); i >= 0 {
		return Target{}, invalid("it has no query or fragment; to a directory with %q in its name, use a symbolic link",
			dir[i:i+1])
	}
	if !utf8.ValidString(dir) || strings.ContainsFunc(dir, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Target{}, invalid("the name of its directory isn't printable: use a symbolic link")
	}
	if filepath.Base(dir) != ".beads" {
		dir = filepath.Join(dir, ".beads")
	}
	return Target{dir}, nil
}

// String returns the URL with the absolute path. Parse returns the same target for it.
func (t Target) String() string { return Scheme + ":" + t.Dir }

func invalid(format string, args ...any) error {
	return fmt.Errorf("invalid beads URL: "+format, args...)
}
