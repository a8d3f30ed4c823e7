package also

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// scheme is a kind of URL of --also.
type scheme struct {
	names   []string // before the colon, in lower case
	example string
	parse   func(raw string) (Target, error)
	// held, stale and remote are advice about a lock that blocks us: a live one, a stale one, and one that only another
	// machine can judge.
	held, stale, remote string
}

const (
	expires = "--wait 1h waits until it is done; a crashed holder's lock expires by itself"
	freed   = "--wait 1h waits until it is done; the server frees a crashed holder's lock"
)

// schemes are all kinds, in the order in which a set tries their locks.
var schemes = []scheme{
	{[]string{"repo"}, "repo:URL#NAME", parseRepository, expires, expires, ""},
	{[]string{"redis", "rediss"}, "redis://HOST/DB?key=KEY", parseRedis, expires, expires, ""},
	{[]string{"postgres", "postgresql"}, "postgres://HOST/DATABASE?key=KEY", parsePostgres, freed, freed, ""},
	{
		[]string{"tower-fleet"}, "tower-fleet:DIR/NAME", parseTowerFleet,
		"--wait 1h waits until it is done; a crashed holder's lock is stale after its ttl, and --force-lock steals it then",
		"if its holder no longer runs, --force-lock steals it", "",
	},
	{
		[]string{"beads"}, "beads:DIR", parseBeads,
		"--wait 1h waits until it is done; the lock is free as soon as its process ends, if that runs on this machine",
		"this file system has no flock, so a stale lock stays: repolock break-lock --dead --also URL",
		"--wait 1h waits until it is done; if the process has ended, run repolock break-lock --dead --also URL on that machine, or without --dead here",
	},
}

// kind returns the scheme of a URL and its index, or -1.
func kind(raw string) (scheme, int) {
	name, _, _ := strings.Cut(raw, ":")
	i := slices.IndexFunc(schemes, func(s scheme) bool { return slices.Contains(s.names, strings.ToLower(name)) })
	if i < 0 {
		return scheme{}, i
	}
	return schemes[i], i
}

// Known reports whether --also knows the scheme of a URL.
func Known(raw string) bool {
	_, i := kind(raw)
	return i >= 0
}

// Hint returns advice about a lock that another holder has.
func Hint(url string, h replock.Info) string {
	s, _ := kind(url)
	advice := s.held
	switch {
	case h.Verdict == replock.Unreadable:
		advice = "if no operation is running, run repolock break-lock --also URL"
	case h.Verdict == replock.Stale:
		advice = s.stale
	case remote(h) && s.remote != "":
		advice = s.remote
	}
	return strings.Replace(advice, "URL", url, 1)
}

// remote reports whether only another machine can judge a lock, as Lock.info describes it.
func remote(h replock.Info) bool { return h.Verdict == replock.Live && h.Holder != "" && h.Why != "" }

// Examples returns a URL of each kind, for people.
func Examples() (all []string) {
	for _, s := range schemes {
		all = append(all, s.example)
	}
	return all
}

// Prefixes returns the beginning of a URL of each kind, for completion.
func Prefixes() (all []string) {
	for _, s := range schemes {
		all = append(all, s.example[:strings.IndexFunc(s.example, unicode.IsUpper)])
	}
	return all
}

// Target is a lock that a URL names.
type Target struct {
	Place session.Place
	// identity is the same for all URLs of one lock. It begins with the index of the scheme, and Parse sorts by it.
	identity string
	// ttl is the default of the system's own specification. 0 means that the specification has none, and that
	// Request.TTL applies.
	ttl time.Duration
	// secret is the file with the password, if the URL or a variable names one.
	secret string
	// backend returns the backend and the key of another system's lock. It is nil for a repository.
	backend func(Request) (locking.Backend, string, error)
	// files is set if the backend asks no server, and bounds its waits itself.
	files bool
}

// Repository reports whether the lock is a repository's, by the protocol of package replock.
func (t Target) Repository() bool { return t.backend == nil }

// Is reports whether the lock is the repository's lock at a place.
func (t Target) Is(p session.Place) bool { return t.Repository() && t.Place.Lock() == p.Lock() }

// TTL returns the ttl of the lock.
func (t Target) TTL(r Request) time.Duration {
	if r.DefaultTTL && t.ttl != 0 {
		return t.ttl
	}
	return r.TTL
}

// Open returns the lock of another system. It makes no connection.
func (t Target) Open(r Request) (Lock, error) {
	backend, key, err := t.backend(r)
	return Lock{Target: t, Backend: backend, Key: key}, err
}

// Request has the settings that all locks of a set share.
type Request struct {
	TTL, Look time.Duration
	// DefaultTTL means that the user chose no TTL.
	DefaultTTL bool
	Wait       time.Duration
	// Settle is the time for which the set holds all its locks before Acquire returns.
	Settle    time.Duration
	Operation string
	Version   string // of this program
	// Metadata is stored in a tower-fleet lock.
	Metadata map[string]string
	// RequestID, Actor and IntentVersion describe this execution in a tower-fleet lock. "" stands for a random id, the
	// user and Version.
	RequestID, Actor, IntentVersion string
	// Force steals a stale tower-fleet lock.
	Force bool
	// Purpose is Hold if a lock is acquired. With another purpose nothing is created.
	Purpose Purpose
	// Repository returns the Locker of a repository's lock.
	Repository func(session.Place) *session.Repository

	created  func(dir string)    // called if the lock's directory was created
	replaced func(*locking.Info) // called if the acquire has removed a stale lock
	record   func(any)           // gets the records of the system's own specification
}

// Purpose is the reason to open another system.
type Purpose int

// The values of Purpose.
const (
	Hold  Purpose = iota // acquire the lock
	Look                 // inspect the lock
	Break                // remove the lock
)

// Parse parses URLs, and returns their locks in the order in which a set tries them. It refuses
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
	s, i := kind(raw)
	if i < 0 {
		name, _, _ := strings.Cut(raw, ":") // the rest can be a secret
		return Target{}, fmt.Errorf("--also %.20q: no such kind of lock; there are %s", name, strings.Join(Examples(), ", "))
	}
	t, err := s.parse(raw)
	if err != nil {
		return t, fmt.Errorf("--also: %s", text.Error(err))
	}
	t.identity = fmt.Sprintf("%d %s", i, t.Place.Lock())
	return t, nil
}

// parseRepository parses repo:URL#NAME. The name follows the last #.
func parseRepository(raw string) (t Target, err error) {
	_, repo, _ := strings.Cut(raw, ":")
	i := max(strings.LastIndex(repo, "#"), 0)
	repo, name := repo[:i], strings.TrimPrefix(repo[i:], "#")
	if repo == "" || name == "" || name == "repository" {
		return t, errors.New("repo: needs the name of a lock after a #: repo:URL#NAME; for the lock of the repository itself, write repolock run --exclusive --repo URL -- before the command")
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

func parseRedis(raw string) (Target, error) {
	t, err := redis.Parse(raw)
	return Target{
		Place:  session.Place{URL: t.String(), Name: t.Key, Identity: t.Identity()},
		secret: t.PasswordFile,
		backend: func(r Request) (locking.Backend, string, error) {
			b, err := redis.Open(t, redis.Options{Holder: r.Operation, Version: r.Version})
			return b, t.Key, err
		},
	}, err
}

func parsePostgres(raw string) (Target, error) {
	t, err := postgres.Parse(raw)
	lock := postgres.Target{Host: t.Host, Port: t.Port, Database: t.Database, Key: t.Key} // the same for all users
	return Target{
		Place:  session.Place{URL: t.String(), Name: t.Key, Identity: lock.String()},
		secret: cmp.Or(t.Passfile, os.Getenv("PGPASSFILE")),
		backend: func(Request) (locking.Backend, string, error) {
			b, err := postgres.Open(t)
			return b, t.Key, err
		},
	}, err
}

// exposed reports whether all users of this machine can read a file.
func exposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}

func parseTowerFleet(raw string) (Target, error) {
	t, err := towerfleet.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: t.Name, Identity: "tower-fleet " + resolve(t.Dir) + "/" + t.Name},
		ttl:   towerfleet.DefaultTTL,
		files: true,
		backend: func(r Request) (locking.Backend, string, error) {
			metadata := map[string]any{}
			for k, v := range r.Metadata {
				metadata[k] = v
			}
			b, err := towerfleet.Open(t.Dir, towerfleet.Options{
				Actor: cmp.Or(r.Actor, identity.Self().User), Intent: r.Operation, IntentVersion: cmp.Or(r.IntentVersion, r.Version),
				RequestID: r.RequestID, HostID: identity.Self().Hostname,
				Observe: observes(t.Dir, r.Purpose), Force: r.Force, Audit: r.record, Metadata: metadata, Created: r.created,
			})
			return &fleet{Backend: b, step: r.Operation}, t.Name, err
		},
	}, err
}

// observes reports whether the directory must not be created, because the lock is only looked at. If the directory is
// missing, Break counts as such a look, because there is no lock to break.
func observes(dir string, p Purpose) bool {
	_, err := os.Stat(dir)
	return p == Look || p == Break && errors.Is(err, fs.ErrNotExist)
}

// fleet is a tower-fleet lock, whose release records the result of the work (section 8 of its specification).
type fleet struct {
	*towerfleet.Backend
	step   string // the work's name, for its failure
	failed atomic.Bool
}

// Release implements locking.Backend. A lock that is released before the work has ended counts as
// a success: it wasn't needed, because another lock of the set was refused.
func (f *fleet) Release(ctx context.Context, h locking.Handle) error {
	return f.ReleaseAfter(ctx, h, towerfleet.Result{Failed: f.failed.Load(), Step: f.step})
}

func (f *fleet) finish(success bool) { f.failed.Store(!success) }

func parseBeads(raw string) (Target, error) {
	t, err := beads.Parse(raw)
	dir, _ := beads.Database(t.Dir) // if it fails, dir is t.Dir, and Open returns the error
	return Target{
		Place: session.Place{URL: t.String(), Name: filepath.Base(t.Dir), Identity: "beads " + resolve(dir), Stays: true},
		files: true,
		backend: func(r Request) (locking.Backend, string, error) {
			b, err := beads.Open(t.Dir, beads.Options{Version: r.Version, Replaced: r.replaced})
			return b, beads.Key, err
		},
	}, err
}

// resolve follows the symbolic links of the longest part of a path that exists.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}
