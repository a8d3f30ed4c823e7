package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/cmd/internal/answers"
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
	cache, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(cache) {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil { // a service's user often has no home directory
		return nil
	}
	p.Name = ""
	s := &Survey{where: p.Where(), mark: filepath.Join(cache, "repolock", "seen", p.ID()), open: open, say: say, done: make(chan struct{})}
	if _, err := os.Lstat(s.mark); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return s
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
	others, known, err := hasOther(ctx, listing, replock.DefaultPrefix+"lock")
	if errors.Is(err, store.ErrPermission) {
		return false, true // the next survey wouldn't see other objects either
	}
	return !others, known && err == nil
}

// hasOther reports whether a store has an object whose key doesn't begin with the prefix. known is false if such
// an object can be on a later page of the listing.
func hasOther(ctx context.Context, s *answers.Store, prefix string) (others, known bool, err error) {
	others, err = s.HasOther(ctx, prefix)
	if !errors.Is(err, errors.ErrUnsupported) {
		return others, true, err
	}
	page, err := s.List(ctx, "", "")
	others = slices.ContainsFunc(page.Objects, func(o store.Object) bool { return !strings.HasPrefix(o.Key, prefix) })
	return others, others || page.Next == "", err
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
