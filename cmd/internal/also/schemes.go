package also

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// scheme is a kind of URL of --also.
type scheme struct {
	names   []string // before the colon, in lower case
	example string
	parse   func(raw string) (Target, error)
}

// schemes are all kinds, in the order in which locks of different kinds are tried.
var schemes = []scheme{
	{[]string{"repo"}, "repo:URL#NAME", parseRepository},
	{[]string{"redis", "rediss"}, "redis://HOST/DB?key=KEY", parseRedis},
	{[]string{"postgres", "postgresql"}, "postgres://HOST/DATABASE?key=KEY", parsePostgres},
	{[]string{"tower-fleet"}, "tower-fleet:DIR/NAME", parseTowerFleet},
	{[]string{"beads"}, "beads:DIR", parseBeads},
}

// Examples returns a URL of each kind, for people.
func Examples() (all []string) {
	for _, s := range schemes {
		all = append(all, s.example)
	}
	return all
}

// Prefixes returns what a URL of each kind begins with, for completion.
func Prefixes() (all []string) {
	for _, s := range schemes {
		all = append(all, s.example[:strings.IndexFunc(s.example, unicode.IsUpper)])
	}
	return all
}

// Target is a lock that a URL names. It needs no connection.
type Target struct {
	Place session.Place
	// identity is the same for URLs that name one lock. It sorts by kind.
	identity string
	// ttl is that of the kind's own specification, for a lock whose user names none. 0 is Request.TTL.
	ttl time.Duration
	// secret is the file with the password, if the URL or a variable names one.
	secret string
	// open returns the lock of another system. It is nil for a repository.
	open func(Request) (Lock, error)
}

// Repository reports whether the lock is a repository's, by the protocol of package replock.
func (t Target) Repository() bool { return t.open == nil }

// TTL returns the ttl of the lock.
func (t Target) TTL(r Request) time.Duration {
	if r.DefaultTTL && t.ttl != 0 {
		return t.ttl
	}
	return r.TTL
}

// Parse parses URLs, and returns their locks in the order in which they are tried. It refuses
// a lock that is named twice.
func Parse(urls []string) ([]Target, error) {
	var all []Target
	for _, raw := range urls {
		t, err := parse(raw)
		if err != nil {
			return nil, fault.As(fault.URL, err)
		}
		if slices.ContainsFunc(all, func(o Target) bool { return o.identity == t.identity }) {
			return nil, fault.New(fault.URL, "--also %s: the lock is named twice", t.Place.URL)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Target) int { return strings.Compare(a.identity, b.identity) })
	return all, nil
}

func parse(raw string) (Target, error) {
	name, _, _ := strings.Cut(raw, ":")
	for i, s := range schemes {
		if !slices.Contains(s.names, strings.ToLower(name)) {
			continue
		}
		t, err := s.parse(raw)
		if err != nil {
			return t, fmt.Errorf("--also: %s", text.Error(err))
		}
		t.identity = fmt.Sprintf("%d %s", i, t.Place.Lock())
		return t, nil
	}
	// The rest can be a secret.
	return Target{}, fmt.Errorf("--also %.20q: no such kind of lock; there are %s", name, strings.Join(Examples(), ", "))
}

// parseRepository parses repo:URL#NAME.
func parseRepository(raw string) (t Target, err error) {
	_, rest, _ := strings.Cut(raw, ":")
	repo, name, ok := cutLast(rest, "#")
	if !ok || name == "" || name == "repository" {
		return t, errors.New("repo: needs the name of a lock behind a #: repo:URL#NAME; for the own lock of another repository put repolock run --exclusive --repo URL -- around the command")
	}
	if err := replock.CheckName(name); err != nil {
		return t, fmt.Errorf("repo: %w", err)
	}
	if err := open.Check(repo); err != nil {
		return t, fmt.Errorf("repo: %w", err)
	}
	p := session.Place{Repo: repo, Name: name}
	p.URL = "repo:" + p.Where() + "#" + name
	return Target{Place: p}, nil
}

// Is reports whether the lock is a repository's at a place.
func (t Target) Is(p session.Place) bool {
	return t.Repository() && t.Place.Lock() == p.Lock()
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
