package session

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// Place is where a lock is: a repository, and the lock's name there.
type Place struct {
	Repo string // a URL or a directory
	Name string // "" is the repository's own lock
	// Listed is the lock's name that the configuration file has for the repository.
	Listed string
}

// ID tells the place apart from others.
func (p Place) ID() string {
	sum := sha256.Sum256([]byte(p.Where() + "\x00" + p.Name))
	return hex.EncodeToString(sum[:8])
}

// Where returns the repository as it can be named from any directory, without credentials.
func (p Place) Where() string {
	if l, err := open.Parse(p.Repo); err == nil && l.Scheme == "file" && !filepath.IsAbs(l.Path) {
		if path, err := filepath.Abs(l.Path); err == nil {
			return path
		}
	}
	return Redact(p.Repo)
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
func (p Place) Looked() string { return "looked in " + p.Where() + ", " + p.Prefix() + "lock*" }

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
