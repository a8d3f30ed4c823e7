package also

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
)

// Request is what is the same for all locks of a set.
type Request struct {
	TTL, Look time.Duration
	// DefaultTTL says that the user names no TTL.
	DefaultTTL bool
	Wait       time.Duration
	// Settle is how long the set waits with all its locks held before Acquire returns.
	Settle    time.Duration
	Operation string
	Version   string // of this program
	// Metadata is for a format that has room for it: tower-fleet's.
	Metadata map[string]string
	// Force steals a stale tower-fleet lock.
	Force bool
	// Purpose is Hold, unless no lock is taken: then nothing is created.
	Purpose Purpose
	// Repository returns the Locker of a repository's lock.
	Repository func(session.Place) *session.Repository

	created func() // called if the directory of the lock was created
}

// Purpose is what another system is opened for.
type Purpose int

// The purposes.
const (
	Hold  Purpose = iota
	Look          // at who holds a lock
	Break         // a lock
)

// Open returns the lock of another system. It makes no connection.
func (t Target) Open(r Request) (Lock, error) {
	l, err := t.open(r)
	if err != nil {
		return l, err
	}
	l.URL, l.secret = t.Place.URL, t.secret
	return l, nil
}

// NewSet returns the Locker of a repository's lock, which is nil if there is none, and of
// those of targets, in the order of Parse. Connections last as long as this process.
func NewSet(first *session.Repository, targets []Target, r Request) *Set {
	s := &Set{wait: r.Wait, settle: r.Settle, look: r.Look, clock: clock.System{}}
	if first != nil {
		s.members = append(s.members, &repository{Repository: first})
	}
	for _, t := range targets {
		if t.Repository() {
			s.members = append(s.members, &repository{r.Repository(t.Place), t.Place})
		} else {
			s.members = append(s.members, &lazy{target: t, request: r})
		}
	}
	return s
}

// repository acquires a repository's lock.
type repository struct {
	*session.Repository
	at session.Place // zero for the first
}

func (m *repository) place() session.Place      { return m.at }
func (m *repository) flush(ctx context.Context) { m.Flush(ctx) }
func (m *repository) answered() bool            { return m.Answered() }

func (m *repository) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	m.Wait = wait
	lock, err := m.Lease(ctx, func(e events.Event) {
		if m.at.URL != "" {
			e.Place, e.Event.Name = m.at.URL, m.at.Name
		}
		observe(e)
	})
	if err != nil && m.at.URL != "" {
		err = fmt.Errorf("%s: %w", m.at.URL, err)
	}
	return lock, err
}

// lazy opens another system when its lock is acquired: an error is that of the acquire.
type lazy struct {
	target  Target
	request Request
	*other
}

func (m *lazy) place() session.Place { return m.target.Place }

func (m *lazy) answered() bool { return m.other != nil && m.other.answered() }

func (m *lazy) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	if m.other == nil {
		r, at := m.request, m.target.Place
		r.TTL = m.target.TTL(r)
		warn := func(kind replock.EventKind) {
			observe(events.Event{Place: at.URL, Event: replock.Event{
				Kind: kind, Time: clock.System{}.Now(), Name: at.Name, Operation: r.Operation, Key: at.URL,
			}})
		}
		r.created = func() { warn(events.DirectoryCreated) }
		l, err := m.target.Open(r)
		if err != nil {
			return nil, err
		}
		if exposed(l.secret) {
			warn(events.PasswordExposed)
		}
		m.other = newOther(l, at, r)
	}
	return m.other.acquire(ctx, wait, observe)
}

var _ session.Locker = (*Set)(nil)
