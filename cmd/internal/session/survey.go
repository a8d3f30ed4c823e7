package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/cmd/internal/answers"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Survey looks in a repository for objects other than locks, when this user first acquires a lock there. A repository
// that contains only locks might be the wrong one.
type Survey struct {
	where string
	mark  string // file that marks the repository as surveyed
	open  func(context.Context) (store.Store, error)
	say   func(format string, args ...any)

	done         chan struct{}
	alone, known bool // whether the repository contains only locks
	store        atomic.Pointer[answers.Store]
}

// NewSurvey returns nil if this user has surveyed the repository before, or has no cache directory for the mark.
func NewSurvey(p Place, open func(context.Context) (store.Store, error), say func(format string, args ...any)) *Survey {
	mark := markOf(p, "seen")
	if mark == "" {
		return nil
	}
	p.Name = ""
	s := &Survey{where: p.Where(), mark: mark, open: open, say: say, done: make(chan struct{})}
	if _, err := os.Lstat(s.mark); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return s
}

// markOf returns the path of this user's file about a repository, or "" if this user has no cache directory.
func markOf(p Place, kind string) string {
	cache, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(cache) {
		return ""
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil { // a service's user often has no home directory
		return ""
	}
	p.Name = ""
	return filepath.Join(cache, "repolock", kind, p.ID())
}

// Memory is the file in which this user's processes remember whether a repository is Cloudstic's. The zero Memory
// remembers nothing.
type Memory struct{ path string }

// NewMemory returns the Memory of a repository.
func NewMemory(p Place) Memory { return Memory{markOf(p, "beside")} }

// lasts is how long a Memory counts. Another program can make a repository in the same place later.
const lasts = 7 * 24 * time.Hour

// Beside returns what is remembered, or replock.BesideUnknown.
func (m Memory) Beside() replock.Beside {
	if m.path == "" {
		return replock.BesideUnknown
	}
	i, err := os.Stat(m.path)
	if err != nil || (clock.System{}).Now().Sub(i.ModTime()).Abs() > lasts {
		return replock.BesideUnknown
	}
	text, err := os.ReadFile(m.path)
	if err != nil {
		return replock.BesideUnknown
	}
	b, _ := replock.ParseBeside(string(text))
	return b
}

// Note remembers what a Locker knows. A failure is no error: the next process finds out again.
func (m Memory) Note(b replock.Beside) {
	if m.path == "" || b == replock.BesideUnknown {
		return
	}
	if os.MkdirAll(filepath.Dir(m.path), 0o700) == nil {
		_ = os.WriteFile(m.path, []byte(b.String()), 0o600) // a part of the text means unknown
	}
}

// Start starts the survey, which ends with ctx. It does nothing if s is nil.
func (s *Survey) Start(ctx context.Context) {
	if s == nil {
		return
	}
	go func() {
		defer close(s.done)
		s.alone, s.known = s.look(ctx)
	}()
}

const (
	// maxSurvey bounds a survey.
	maxSurvey = 10 * time.Second
	// maxReport bounds the wait for a survey when the work is over. A repository whose
	// survey takes longer is marked, too.
	maxReport = 5 * time.Second
)

func (s *Survey) look(ctx context.Context) (alone, known bool) {
	ctx, cancel := context.WithTimeout(ctx, maxSurvey)
	defer cancel()
	opened, err := s.open(ctx)
	if err != nil {
		return false, false
	}
	listing := answers.Of(opened)
	s.store.Store(listing)
	others, known, err := store.HasOther(ctx, listing, replock.DefaultPrefix+"lock")
	if errors.Is(err, store.ErrPermission) {
		return false, true // the next survey wouldn't see other objects either
	}
	return !others, known && err == nil
}

// answered reports whether the store has answered the survey.
func (s *Survey) answered() bool {
	if s == nil {
		return false
	}
	listing := s.store.Load()
	return listing != nil && listing.Answered()
}

// Report shows the result as soon as it is known. Call it when the lock is held. wait waits for the result, for
// maxReport at most.
func (s *Survey) Report() (wait func()) {
	if s == nil {
		return func() {}
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		<-s.done
		if s.known && s.remember() == nil && s.alone {
			s.say("nothing but locks is in %s (repolock warns once): if that isn't the repository, correct --repo: two machines that lock in different places don't see each other", s.where)
		}
	}()
	return func() {
		select {
		case <-reported:
		case <-time.After(maxReport):
			_ = s.remember()
		}
	}
}

// remember makes the mark. It fails if another process has made it first.
func (s *Survey) remember() error {
	if err := os.MkdirAll(filepath.Dir(s.mark), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(s.mark, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
