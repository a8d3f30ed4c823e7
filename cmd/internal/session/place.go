package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// Place is where a lock is: a repository and the lock's name there, or another system.
type Place struct {
	Repo string // a URL or a directory, "" for another system
	Name string // of the lock; "" is the repository's own
	// Listed is the lock's name that the configuration file has for the repository.
	Listed string
	// URL names the lock of another system, or a repository's beside the first. It contains no
	// credentials.
	URL string
	// Stays is set if nothing but a person or the next holder removes the lock of a holder that was killed.
	Stays bool
	// Identity is the same for all URLs of one lock of another system. "" is URL.
	Identity string
}

// String returns the name of the place among those of a Request: "" is the first repository.
func (p Place) String() string { return p.URL }

// other reports whether the lock is another system's.
func (p Place) other() bool { return p.Repo == "" && p.URL != "" }

// ID tells the place apart from others. It is short, and the same for all spellings of one lock.
func (p Place) ID() string {
	sum := sha256.Sum256([]byte(p.Lock()))
	return hex.EncodeToString(sum[:8])
}

// Lock returns the same text for all spellings of one lock. It isn't for people.
func (p Place) Lock() string {
	if p.other() {
		return cmp.Or(p.Identity, p.URL)
	}
	return p.repository() + "\x00" + p.Name
}

// repository returns the same for URLs and paths of one repository that are written in different
// ways.
func (p Place) repository() string {
	where := p.Where()
	if l, err := open.Parse(p.Repo); err == nil && l.Scheme == "file" {
		if path, err := filepath.Abs(l.Path); err == nil {
			where = path
		}
	} else if u, err := url.Parse(where); err == nil {
		u.Path = strings.TrimRight(u.Path, "/")
		where = u.String()
	}
	return where
}

// Where returns the repository as it can be named from any directory, without credentials.
func (p Place) Where() string {
	if p.other() {
		return p.URL
	}
	if l, err := open.Parse(p.Repo); err == nil && l.Scheme == "file" && !filepath.IsAbs(l.Path) {
		if path, err := filepath.Abs(l.Path); err == nil {
			return path
		}
	}
	return Redact(p.Repo)
}

// Title names what is locked, for people.
func (p Place) Title() string {
	switch {
	case p.other():
		return p.Where()
	case p.Name != "":
		return "lock " + p.Name + " of repository " + p.Where()
	default:
		return "repository " + p.Where()
	}
}

// Acquiring says which locks are being acquired, in words that are true until all are held.
func Acquiring(places []Place) string {
	if len(places) > 1 {
		return "acquiring the locks: " + Titles(places)
	}
	return "acquiring the lock: " + Titles(places)
}

// Titles names the first of some places, and how many others there are.
func Titles(places []Place) string {
	switch len(places) {
	case 0: // none is given, which is an error that comes later
		return "the repository"
	case 1:
		return places[0].Title()
	}
	return fmt.Sprintf("%s and %d more", places[0].Title(), len(places)-1)
}

// Prefix is the beginning of the keys of the lock.
func (p Place) Prefix() string {
	if p.Name == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + p.Name + "/"
}

// Looked says where locks were looked for: a lock in a wrong place excludes nothing, and
// seems to be free.
func (p Place) Looked() string {
	if p.other() {
		return "looked at " + p.Where()
	}
	return "looked in " + p.Where() + ", " + p.Prefix() + "lock*"
}

// Redact removes what can be a secret from a repository's URL. The result still opens the
// repository if that is an object store, because its credentials are elsewhere.
func Redact(repo string) string {
	if !strings.Contains(repo, "://") {
		return repo
	}
	u, err := url.Parse(repo)
	if err != nil {
		return ""
	}
	if location, err := open.Parse(repo); err != nil || location.URL == nil {
		u.RawQuery = ""
	}
	u.User, u.Fragment = nil, ""
	return u.String()
}
