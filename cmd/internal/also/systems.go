package also

import (
	"path/filepath"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
	"github.com/repolock/repolock/locking/towerfleet"
)

func parseRedis(raw string) (Target, error) {
	t, err := redis.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: t.Key}, identity: t.Identity(),
		open: func(r Request) (l Lock, err error) {
			b, err := redis.Open(t, redis.Options{Holder: r.Operation, Version: r.Version})
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: t.Key, close: b.Close}, nil
		},
	}, err
}

func parsePostgres(raw string) (Target, error) {
	t, err := postgres.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: t.Key}, identity: t.String(),
		open: func(r Request) (l Lock, err error) {
			b, err := postgres.Open(t, postgres.Options{})
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: t.Key, close: b.Close}, nil
		},
	}, err
}

func parseTowerFleet(raw string) (Target, error) {
	t, err := towerfleet.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: t.Name}, identity: t.String(),
		open: func(r Request) (l Lock, err error) {
			b, err := towerfleet.Open(t, towerfleet.Options{
				Actor: identity.Self().User, Intent: r.Operation, IntentVersion: r.Version, HostID: identity.Self().Hostname,
				Mode: r.intentMode(), Force: r.Force, Audit: r.Audit,
			})
			if err != nil {
				return l, err
			}
			f := &fleet{Backend: b}
			return Lock{Backend: f, Key: t.Name, finish: f.finish}, nil
		},
	}, err
}

func parseBeads(raw string) (Target, error) {
	t, err := beads.Parse(raw)
	return Target{
		Place: session.Place{URL: t.String(), Name: filepath.Base(t.Dir)}, identity: t.String(),
		open: func(r Request) (l Lock, err error) {
			b, err := beads.Open(t, beads.Options{Version: r.Version})
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: beads.Key}, nil
		},
	}, err
}
