package also

import (
	"cmp"
	"os"
	"runtime"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
)

func parseRedis(raw string) (Target, error) {
	t, err := redis.Parse(raw)
	return Target{
		Place:  session.Place{URL: t.String(), Name: t.Key, Identity: t.Identity()},
		secret: t.PasswordFile,
		open: func(r Request) (l Lock, err error) {
			b, err := redis.Open(t, redis.Options{Holder: r.Operation, Version: r.Version})
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: t.Key, close: b.Close}, nil
		},
	}, err
}

// exposed reports whether all users of this machine can read a file.
func exposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}

func parsePostgres(raw string) (Target, error) {
	t, err := postgres.Parse(raw)
	lock := postgres.Target{Host: t.Host, Port: t.Port, Database: t.Database, Key: t.Key} // whoever asks for it
	return Target{
		Place:  session.Place{URL: t.String(), Name: t.Key, Identity: lock.String()},
		secret: cmp.Or(t.Passfile, os.Getenv("PGPASSFILE")),
		open: func(r Request) (l Lock, err error) {
			b, err := postgres.Open(t)
			if err != nil {
				return l, err
			}
			return Lock{Backend: b, Key: t.Key, close: b.Close}, nil
		},
	}, err
}
