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
	by    string // the flag, variable or argument that names the repository
	mark  string // file that marks the repository as surveyed
	open  func(context.Context) (store.Store, error)
	say   func(format string, args ...any)

	done         chan struct{}
	alone, known bool // whether the repository contains only locks
	store        atomic.Pointer[answers.Store]
}

// NewSurvey returns a survey of a repository that by, such as --repo, names. It returns nil if this user has surveyed the
// repository before, or has no cache directory for the mark.
func NewSurvey(p Place, by string, open func(context.Context) (store.Store, error), say func(format string, args ...any)) *Survey {
	mark := markOf(p, "seen")
	if mark == "" {
		return nil
	}
	p.Name = ""
	s := &Survey{where: p.Where(), by: by, mark: mark, open: open, say: say, done: make(chan struct{})}
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

// Memory has the facts that this user's processes remember about a repository: whether it is Cloudstic's, and that its
// bucket exists. The zero Memory remembers nothing.
type Memory struct{ beside, exists note }

// NewMemory returns the Memory of a repository.
func NewMemory(p Place) Memory { return Memory{note(markOf(p, "beside")), note(markOf(p, "exists"))} }

// Beside returns the remembered Beside, or replock.BesideUnknown.
func (m Memory) Beside() replock.Beside {
	b, _ := replock.ParseBeside(m.beside.text())
	return b
}

// NoteBeside remembers what a Locker knows.
func (m Memory) NoteBeside(b replock.Beside) {
	if b != replock.BesideUnknown {
		m.beside.write(b.String())
	}
}

// Exists reports whether a process has found the bucket at this location. The same URL can lead to another server when
// a setting of the environment changes.
func (m Memory) Exists(location string) bool { return location != "" && m.exists.text() == location }

// NoteExists remembers that the bucket exists.
func (m Memory) NoteExists(location string) { m.exists.write(location) }

// ForgetExists forgets it, because a request has found no bucket.
func (m Memory) ForgetExists() { m.exists.remove() }

// note is the path of a file that has a text for later processes of this user, or "".
type note string

// lasts is how long a note counts. It isn't forever, because a note becomes wrong if another program makes a repository
// in the same place.
const lasts = 7 * 24 * time.Hour

// text returns the text, or "" if there is none or it is too old.
func (n note) text() string {
	if n == "" {
		return ""
	}
	i, err := os.Stat(string(n))
	if err != nil || (clock.System{}).Now().Sub(i.ModTime()).Abs() > lasts {
		return ""
	}
	text, err := os.ReadFile(string(n))
	if err != nil {
		return ""
	}
	return string(text)
}

// write replaces the text. A failure is no error: the next process finds out again. A part of a text means nothing.
func (n note) write(text string) {
	if n != "" && text != "" && os.MkdirAll(filepath.Dir(string(n)), 0o700) == nil {
		_ = os.WriteFile(string(n), []byte(text), 0o600)
	}
}

func (n note) remove() {
	if n != "" {
		_ = os.Remove(string(n))
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
			s.say("nothing but locks is in %s (repolock warns once): if that isn't the repository, correct %s: two machines that lock in different places don't see each other", s.where, s.by)
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
