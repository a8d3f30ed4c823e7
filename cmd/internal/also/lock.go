package also

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock of another system: a backend and a key of it.
type Lock struct {
	Backend locking.Backend
	Key     string
	URL     string // without credentials
	secret  string // the file with the password, if the URL or a variable names one
	files   bool   // the backend asks no server, and bounds its waits itself

	finish func(success bool)
	listen func(record func(event any)) // nil: the system's specification has no records
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

// Status returns the lock as that of a repository, or nothing if it is free.
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
		// A holder's own id outlasts its renewals, and its file has their time. A revision doesn't, and servers
		// tell that time anew each time.
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
		return nil, fmt.Errorf("%s: a lock of this kind can't be broken", l.URL)
	}
	done, err := breaker.Break(ctx, seen, opts.Stale)
	if !done && err == nil {
		return nil, nil // another holder has it
	}
	broken.Err = err
	return []replock.Broken{broken}, err
}

// maxText bounds a text of another program, as replock.Info does.
const maxText = 1 << 10

// info describes a holder as that of a repository's lock. Its id is the holder's own, else the revision.
func (l Lock) info(i *locking.Info) replock.Info {
	now := clock.System{}.Now()
	info := replock.Info{
		Mode: replock.Exclusive, Keys: []string{l.URL}, ID: cmp.Or(i.Request, i.Revision), Holder: holder(i),
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
		info.ProcessGone = i.TTL == 0 // such a lock ends with its process alone
	}
	return info
}

// holder names the machine and the process of a holder, and before them the program if no other field
// describes it.
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
