package also

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock of another system.
type Lock struct {
	Target
	Backend locking.Backend
	Key     string
}

// Close ends the connections of the backend.
func (l Lock) Close() error {
	if c, ok := l.Backend.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// maxInspect bounds an inspection.
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

// Status returns the lock as replock.Locker.Status does, or nothing if it is free.
func (l Lock) Status(ctx context.Context) ([]replock.Info, error) {
	info, err := l.Inspect(ctx)
	if info == nil || err != nil {
		return nil, err
	}
	return []replock.Info{*info}, nil
}

// Break removes the lock if the options choose it, as replock.Locker.Break does. Locks of two keys
// can have one id.
func (l Lock) Break(ctx context.Context, opts replock.BreakOptions) ([]replock.Broken, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInspect)
	defer cancel()
	seen, err := l.look(ctx)
	if seen == nil || err != nil {
		return nil, err
	}
	info := l.info(seen)
	shown := opts.Shown == nil || slices.ContainsFunc(opts.Shown, func(b replock.Broken) bool {
		// A holder's own id stays the same when it renews the lock, but the time in its file changes. A revision
		// changes itself, and servers report another time with each answer.
		renewed := seen.Request != "" && !b.ModTime.Equal(info.ModTime)
		return b.ID == info.ID && b.Key() == info.Key() && !renewed
	})
	if !shown || opts.ID != "" && opts.ID != info.ID || opts.Stale && info.Verdict != replock.Stale || opts.Dead && !info.ProcessGone {
		return nil, nil
	}
	broken := replock.Broken{Info: info}
	if opts.DryRun {
		return []replock.Broken{broken}, nil
	}
	breaker, ok := l.Backend.(locking.Breaker)
	if !ok {
		return nil, fmt.Errorf("%s: a lock of this kind can't be broken", l.Place.URL)
	}
	done, err := breaker.Break(ctx, seen, opts.Stale)
	if !done && err == nil {
		return nil, nil // another holder has it
	}
	broken.Err = err
	return []replock.Broken{broken}, err
}

// maxText bounds a text that another program wrote, as in replock.Info.
const maxText = 1 << 10

// info describes a lock as replock does. Its id is the holder's own, or else the revision.
func (l Lock) info(i *locking.Info) replock.Info {
	now := clock.System{}.Now()
	info := replock.Info{
		Mode: replock.Exclusive, Keys: []string{l.Place.URL}, ID: cmp.Or(i.Request, i.Revision), Holder: holder(i),
		User: text.Cut(i.Actor, maxText), Operation: text.Cut(i.Intent, maxText),
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
		info.ProcessGone = i.TTL == 0 // without a ttl, only the end of its process makes a lock stale
	}
	return info
}

// holder names the machine and the process of a holder, and first the program if it has no id of its own.
func holder(i *locking.Info) string {
	s := i.Holder
	switch {
	case i.Request != "":
		s = i.Host
	case i.Host != "":
		s += " on " + i.Host
	}
	if i.PID != 0 {
		s += fmt.Sprintf(" (pid %d)", i.PID)
	}
	return strings.TrimSpace(s)
}
