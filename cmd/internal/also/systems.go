package also

import (
	"path/filepath"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/towerfleet"
)

func parseTowerFleet(raw string) (Target, error) {
	t, err := towerfleet.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: t.Name, Identity: "tower-fleet " + resolve(t.Dir) + "/" + t.Name},
		ttl:   towerfleet.DefaultTTL,
		open: func(r Request) (l Lock, err error) {
			f := &fleet{step: r.Operation}
			f.Backend, err = towerfleet.New(t.Dir, towerfleet.Options{
				Actor: identity.Self().User, Intent: r.Operation, IntentVersion: r.Version, HostID: identity.Self().Hostname,
				Mode: mode(t.Dir, r.Purpose), Force: r.Force, Audit: f.audit, Metadata: metadata(r.Metadata),
				Created: func(string) {
					if r.created != nil {
						r.created()
					}
				},
			})
			return Lock{Backend: f, Key: t.Name, files: true, finish: f.finish, listen: f.listen}, err
		},
	}, err
}

func parseBeads(raw string) (Target, error) {
	t, err := beads.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: filepath.Base(t.Dir), Identity: "beads " + resolve(t.Dir), Stays: true},
		open: func(r Request) (l Lock, err error) {
			b, err := beads.New(t.Dir, beads.Options{Version: r.Version})
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: beads.Key, files: true}, nil
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
