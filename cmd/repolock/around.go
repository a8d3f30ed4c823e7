package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/store"
)

// place of the lock, for people: a lock in a wrong place excludes nothing, and looks free.
func (g global) looked() string {
	return "looked in " + g.where() + ", " + lockPrefix(g.Name) + "lock*"
}

// around is a look, beside the first acquire of this user in a repository, at what else is
// there. Nothing but locks may mean that the repository is elsewhere.
type around struct {
	r     *reporter
	where string
	mark  string // the file that remembers that it was said, or that there was no need to
	done  chan struct{}
	found found
	heard atomic.Pointer[listener]
}

type found int

const (
	unknown found = iota
	others
	locksAlone
)

// lookAround begins the look, or returns nil if there is none to be taken: one was before, or
// nothing is to be said, or that it was said can't be remembered.
func lookAround(ctx context.Context, r *reporter, g global) *around {
	cache, err := os.UserCacheDir()
	if err != nil || r.Quiet || r.JSON || g.Repo == "" || g.unknown != nil {
		return nil
	}
	g.Name = ""
	a := &around{r: r, where: g.where(), mark: filepath.Join(cache, "repolock", "seen", g.place()), done: make(chan struct{})}
	if _, err := os.Lstat(a.mark); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	go func() {
		defer close(a.done)
		a.found = a.look(ctx, g)
	}()
	return a
}

// maxAround is how long the look may take, and maxTold how long is waited for it, once there is
// nothing else to do. A repository in which it takes longer isn't looked around in again.
const (
	maxAround = 10 * time.Second
	maxTold   = 5 * time.Second
)

func (a *around) look(ctx context.Context, g global) found {
	ctx, cancel := context.WithTimeout(ctx, maxAround)
	defer cancel()
	s, err := g.store(ctx)
	if err != nil {
		return unknown
	}
	l := &listener{Store: s}
	a.heard.Store(l)
	page, err := l.List(ctx, "", "")
	switch {
	case errors.Is(err, store.ErrPermission):
		return others // which aren't for us to see, and won't be the next time
	case err != nil:
		return unknown
	}
	for _, o := range page.Objects {
		if !strings.HasPrefix(o.Key, lockPrefix("")+"lock") {
			return others
		}
	}
	if page.Next != "" {
		return unknown
	}
	return locksAlone
}

// reached reports whether the store has answered.
func (a *around) reached() bool {
	if a == nil {
		return false
	}
	l := a.heard.Load()
	return l != nil && l.heard()
}

// tell says what there is to say, as soon as it is known, and once the lock is held. wait
// returns when that is done, or takes too long.
func (a *around) tell() (wait func()) {
	if a == nil {
		return func() {}
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		<-a.done
		if a.found != unknown && a.remember() == nil && a.found == locksAlone {
			a.r.say("nothing but locks is in %s (this is said once): if that isn't the repository, correct --repo, because locks in two places exclude nothing", a.where)
		}
	}()
	return func() {
		select {
		case <-told:
		case <-time.After(maxTold):
			_ = a.remember()
		}
	}
}

// remember makes the mark. An error is also that of another process that was faster.
func (a *around) remember() error {
	if err := os.MkdirAll(filepath.Dir(a.mark), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(a.mark, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
