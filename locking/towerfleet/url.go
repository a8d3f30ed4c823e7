package towerfleet

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// Scheme begins the URL of a lock: tower-fleet:DIR/NAME.
const Scheme = "tower-fleet"

// Target is a lock that a URL names.
type Target struct {
	// Dir is the lock directory, absolute and clean.
	Dir string
	// Name is the lock's name: the key for the Backend's methods.
	Name string
}

// Parse reads tower-fleet:DIR/NAME. A relative DIR begins at the working directory. Parse takes each
// character literally, without percent-encoding or a query. It reads no file. Its error is one line, and
// wraps locking.ErrKey if only the name is wrong.
func Parse(raw string) (Target, error) {
	refuse := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("%q isn't a lock's URL: %s: write %s:DIR/NAME", text.Cut(raw, 200), why, Scheme)
	}
	scheme, path, ok := strings.Cut(raw, ":")
	slash := strings.LastIndexByte(path, '/')
	switch {
	case !ok || !strings.EqualFold(scheme, Scheme):
		return refuse("it has another scheme")
	case text.Escape(path) != path:
		return refuse("it has characters that aren't printable")
	case strings.HasPrefix(path, "//"):
		return refuse("it has a host")
	case path == "~" || strings.HasPrefix(path, "~/"):
		return refuse("the shell doesn't expand ~ there, so use $HOME")
	case slash < 0:
		return refuse("it has no directory, such as ./")
	}
	dir, name := path[:slash+1], path[slash+1:]
	if strings.HasSuffix(name, ".lock") && checkName(strings.TrimSuffix(name, ".lock")) == nil {
		return Target{}, fmt.Errorf("%w: lock name %q: leave out .lock", locking.ErrKey, name)
	}
	if err := checkName(name); err != nil {
		return Target{}, err
	}
	dir, err := filepath.Abs(filepath.FromSlash(dir))
	if err != nil {
		return refuse("the working directory is unknown: " + text.Error(err))
	}
	if strings.HasPrefix(filepath.ToSlash(dir), "//") || text.Escape(dir) != dir {
		return refuse("the working directory has a name that isn't printable, or begins with //")
	}
	return Target{Dir: dir, Name: name}, nil
}

// String returns the URL. Parse returns t for it, in each working directory.
func (t Target) String() string {
	return Scheme + ":" + strings.TrimSuffix(filepath.ToSlash(t.Dir), "/") + "/" + t.Name
}
