package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// alone reports whether the locks of --also are held without a repository's.
func (g global) alone(targets []also.Target) bool {
	return g.Repo == "" && g.unknown == nil && len(targets) > 0
}

// at returns the settings for a lock beside the first.
func (g global) at(p session.Place) global {
	g.Repo, g.Name, g.unknown, g.listed = p.Repo, p.Name, nil, ""
	return g
}

// system is what has locks: a replock.Locker, or an also.Lock.
type system interface {
	Status(context.Context) ([]replock.Info, error)
	Break(context.Context, replock.BreakOptions) ([]replock.Broken, error)
}

// placed is a system with its place.
type placed struct {
	system
	session.Place
}

// unopened is a system that couldn't be opened.
type unopened struct{ err error }

func (u unopened) Status(context.Context) ([]replock.Info, error) { return nil, u.err }

func (u unopened) Break(context.Context, replock.BreakOptions) ([]replock.Broken, error) {
	return nil, u.err
}

// systems returns what has the repository's lock, unless none is given, and those of --also. One
// that can't be opened returns why when it is asked, and hides no other. An error is for a wrong
// command line. closeAll ends the connections.
func (g global) systems(urls []string, purpose also.Purpose) (all []placed, closeAll func(), err error) {
	var open []also.Lock
	closeAll = func() {
		for _, l := range open {
			_ = l.Close()
		}
	}
	targets, err := also.Parse(urls)
	if err != nil {
		return nil, closeAll, err
	}
	add := func(s system, p session.Place, failed error) {
		if failed != nil {
			s = unopened{failed}
			if fault.Of(failed).Exit == fault.ExitUsage {
				err = cmp.Or(err, failed)
			}
		}
		all = append(all, placed{s, p})
	}
	if !g.alone(targets) {
		l, failed := g.locker()
		add(l, g.place(), failed)
	}
	for _, t := range targets {
		if t.Repository() {
			l, failed := g.at(t.Place).locker()
			add(l, t.Place, failed)
			continue
		}
		l, failed := t.Open(also.Request{Purpose: purpose})
		if failed == nil {
			open = append(open, l)
		}
		add(l, t.Place, failed)
	}
	return all, closeAll, err
}

// found is what was found at a place.
type found[T any] struct {
	lock  T
	at    placed
	place string // for people, "" if there is no other
}

// everywhere calls f with each system. It returns what that returns, the systems that returned no
// error, and the errors of the others.
func everywhere[T any](all []placed, f func(placed) ([]T, error)) (list []found[T], answered []placed, err error) {
	for _, one := range all {
		some, failed := f(one)
		for _, lock := range some {
			list = append(list, found[T]{lock, one, label(all, one)})
		}
		if failed == nil {
			answered = append(answered, one)
			continue
		}
		if where := label(all, one); len(all) > 1 && where != "" {
			failed = fmt.Errorf("%s: %w", where, failed)
		}
		err = fault.Join(err, failed)
	}
	return list, answered, err
}

// label names the place of a lock of --also, or any if there are several.
func label(all []placed, one placed) string {
	if one.URL == "" && len(all) > 1 {
		return one.Where()
	}
	return one.URL
}

// looked says where locks were looked for, one place a line.
func looked(all []placed) (lines string) {
	for _, one := range all {
		lines += text.Escape(one.Looked()) + "\n"
	}
	return lines
}

// reading says where locks are being looked for.
func reading(all []placed) string {
	places := make([]session.Place, len(all))
	for i, one := range all {
		places[i] = one.Place
	}
	return "reading the locks: " + session.Titles(places)
}
