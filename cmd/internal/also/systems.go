package also

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
	"github.com/repolock/repolock/locking/towerfleet"
)

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
			b, err := towerfleet.New(t.Dir, towerfleet.Options{
				Actor: identity.Self().User, Intent: r.Operation, IntentVersion: r.Version, HostID: identity.Self().Hostname,
				Observe: observes(t.Dir, r.Purpose), Force: r.Force, Audit: r.record, Metadata: metadata, Created: r.created,
			})
			return &fleet{Backend: b, step: r.Operation}, t.Name, err
		},
	}, err
}

// observes reports whether the lock is only looked at, so that no directory is created. In a missing
// directory there is no lock to break.
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
	return Target{
		Place: session.Place{URL: t.String(), Name: filepath.Base(t.Dir), Identity: "beads " + resolve(t.Dir), Stays: true},
		files: true,
		backend: func(r Request) (locking.Backend, string, error) {
			b, err := beads.New(t.Dir, beads.Options{Version: r.Version})
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
