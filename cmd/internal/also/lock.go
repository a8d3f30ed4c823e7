package also

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock of another system: a backend and a key of it.
type Lock struct {
	Backend locking.Backend
	Key     string
	URL     string // without credentials

	finish func(success bool)
	close  func() error
}

// Close ends the connections of the backend.
func (l Lock) Close() error {
	if l.close == nil {
		return nil
	}
	return l.close()
}

// maxInspect bounds a look at who holds a lock.
const maxInspect = 5 * time.Second

// Inspect returns the holder of the lock as status shows it, or nil if the lock is free.
func (l Lock) Inspect(ctx context.Context) (*replock.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInspect)
	defer cancel()
	i, err := l.look(ctx)
	if i == nil || err != nil {
		return nil, err
	}
	info := l.info(i)
	return &info, nil
}

func (l Lock) look(ctx context.Context) (*locking.Info, error) {
	inspector, ok := l.Backend.(locking.Inspector)
	if !ok {
		return nil, nil
	}
	return inspector.Inspect(ctx, l.Key)
}

// Break removes the lock that Inspect has described, if it is unchanged. It reports whether it
// has.
func (l Lock) Break(ctx context.Context, seen replock.Info, stale bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInspect)
	defer cancel()
	i, err := l.look(ctx)
	if i == nil || err != nil || i.Revision != seen.ID {
		return false, err
	}
	breaker, ok := l.Backend.(locking.Breaker)
	if !ok {
		return false, nil
	}
	return breaker.Break(ctx, i, stale)
}

// info describes a holder as that of a repository's lock. Its id is the revision.
func (l Lock) info(i *locking.Info) replock.Info {
	now := clock.System{}.Now()
	info := replock.Info{
		Mode: replock.Exclusive, Keys: []string{l.URL}, ID: i.Revision, Holder: holder(i),
		Acquired: i.Acquired, ModTime: i.Renewed, TTL: i.TTL, Verdict: replock.Live, Why: i.Trouble,
	}
	if !i.Renewed.IsZero() {
		info.Age = now.Sub(i.Renewed)
	}
	if i.TTL > 0 {
		info.Left = i.TTL - info.Age
	}
	switch {
	case i.Trouble != "":
		info.Verdict = replock.Unreadable
	case i.Stale:
		info.Verdict = replock.Stale
		info.ProcessGone = i.TTL == 0 // such a lock ends with its process alone
	}
	return info
}

func holder(i *locking.Info) string {
	s := i.Holder
	if i.Host != "" {
		s += " on " + i.Host
	}
	if i.PID != 0 {
		s += fmt.Sprintf(" (pid %d)", i.PID)
	}
	return strings.TrimSpace(s)
}
