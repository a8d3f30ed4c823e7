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

// Place is the place of a lock: a repository and the lock's name there, or another system.
type Place struct {
	Repo string // a URL or a directory, "" for another system
	Name string // of the lock; "" is the repository's own
	// Listed is the lock's name for this repository in the configuration file.
	Listed string
	// URL is the URL of --also, without credentials. It is "" for the repository of --repo.
	URL string
	// Stays is set if the lock of a killed holder stays until a person or the next holder removes it.
	Stays bool
	// Identity is the same for all URLs of one lock of another system. "" means URL.
	Identity string
}

// other reports whether the lock is another system's.
func (p Place) other() bool { return p.Repo == "" && p.URL != "" }

// ID is a short hash of Lock.
func (p Place) ID() string {
	sum := sha256.Sum256([]byte(p.Lock()))
	return hex.EncodeToString(sum[:8])
}

// Lock returns the same text for all spellings of one lock. It isn't for people.
func (p Place) Lock() string {
	if p.other() {
		return cmp.Or(p.Identity, p.URL)
	}
	return p.Repository() + "\x00" + p.Name
}

// Repository returns the same text for all spellings of one repository, without credentials.
func (p Place) Repository() string {
	where := p.Where()
	if l, err := open.Parse(p.Repo); err == nil && l.Scheme == "file" {
		if path, err := filepath.Abs(l.Path); err == nil {
			where = path
		}
	} else if u, err := parsed(where); err == nil {
		u.Path = strings.TrimRight(u.Path, "/")
		where = u.String()
	}
	return where
}

// Where names the repository or the system, with an absolute path and without credentials.
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

// Title names the locked thing for people.
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

// Acquiring returns the arguments of BeginWait for an acquire.
func Acquiring(places []Place) (doing, about string) {
	if len(places) > 1 {
		return "acquiring the locks", Titles(places)
	}
	return "acquiring the lock", Titles(places)
}

// Titles names the first of the places, and the number of the others.
func Titles(places []Place) string {
	switch len(places) {
	case 0: // a later check reports this
		return "the repository"
	case 1:
		return places[0].Title()
	}
	return fmt.Sprintf("%s and %d more", places[0].Title(), len(places)-1)
}

// Prefix is the prefix of the lock's keys.
func (p Place) Prefix() string {
	if p.Name == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + p.Name + "/"
}

// Looked names the place that was searched. In a wrong place, a lock would seem to be free.
func (p Place) Looked() string {
	if p.other() {
		return "looked at " + p.Where()
	}
	return "looked in " + p.Where() + ", " + p.Prefix() + "lock*"
}

// parsed returns a URL of a repository, or any other one.
func parsed(repo string) (*url.URL, error) {
	if l, err := open.Parse(repo); err == nil && l.URL != nil {
		return l.URL, nil
	}
	return url.Parse(repo)
}

// Redact removes the parts of a repository's URL that can be secret. The URL of an object store still opens it,
// because its credentials are elsewhere.
func Redact(repo string) string {
	if !strings.Contains(repo, "://") {
		return repo
	}
	u, err := parsed(repo)
	if err != nil {
		return ""
	}
	location, err := open.Parse(repo)
	if err != nil || location.URL == nil {
		u.RawQuery, u.User = "", nil
	}
	if location.Scheme == "sftp" && u.RawQuery != "" && u.RawQuery != "listings=fresh" {
		u.RawQuery = "command=..." // it can have a password
	}
	u.Fragment = ""
	return u.String()
}
