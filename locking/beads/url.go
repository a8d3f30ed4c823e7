package beads

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scheme is the scheme of beads:DIR.
const Scheme = "beads"

// Target is a database that a URL names.
type Target struct {
	// Dir is the absolute path of the .beads directory.
	Dir string
}

// Parse parses beads:DIR. If DIR isn't called .beads, the database is DIR/.beads. A relative DIR begins
// at the working directory. Parse reads no file. It takes characters literally, and refuses ?, # and
// characters that aren't printable.
func Parse(raw string) (Target, error) {
	scheme, dir, ok := strings.Cut(raw, ":")
	switch {
	case !ok || !strings.EqualFold(scheme, Scheme):
		return Target{}, invalid("it must begin with beads:")
	case dir == "":
		return Target{}, invalid("it has no directory: write beads:DIR")
	case strings.HasPrefix(dir, "//"):
		return Target{}, invalid("it has no host: write beads:/DIR")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Target{}, invalid("the working directory is unknown: %v", err)
	}
	if i := strings.IndexAny(dir, "?#"); i >= 0 {
		return Target{}, invalid("its directory has a %q in its name: use a symbolic link", dir[i:i+1])
	}
	if !utf8.ValidString(dir) || strings.ContainsFunc(dir, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Target{}, invalid("its directory has a name that isn't printable: use a symbolic link")
	}
	if filepath.Base(dir) != ".beads" {
		dir = filepath.Join(dir, ".beads")
	}
	return Target{dir}, nil
}

// String returns the URL with the absolute path. Parse returns t for it.
func (t Target) String() string { return Scheme + ":" + t.Dir }

func invalid(format string, args ...any) error {
	return fmt.Errorf("invalid beads URL: "+format, args...)
}
