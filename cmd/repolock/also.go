package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
)

// alone reports whether all locks of the command come from --also.
func (g global) alone(targets []also.Target) bool {
	return g.Repo == "" && g.Unknown == nil && len(targets) > 0
}

// at returns a copy of g for another place: its repository and the lock's name there.
func (g global) at(p session.Place) global {
	g.Repo, g.Name, g.Unknown, g.Listed = p.Repo, p.Name, nil, ""
	return g
}

// system keeps locks: a replock.Locker or an also.Lock.
type system interface {
	Status(context.Context) ([]replock.Info, error)
	Break(context.Context, replock.BreakOptions) ([]replock.Broken, error)
}

type placed struct {
	system
	session.Place
	typed  map[string]string // flags of a command line that names the place, as global.Typed
	listed string            // the repository's name in the configuration file, for status --all
}

// survey is the system's Status, but calls each with some locks at a time. It returns the keys that the system's clients
// ignore. A system that isn't a repository has none.
func (p placed) survey(ctx context.Context, each func([]replock.Info)) (ignored []string, err error) {
	if repository, ok := p.system.(*replock.Locker); ok {
		return repository.Survey(ctx, each)
	}
	locks, err := p.Status(ctx)
	each(locks)
	return nil, err
}

// located returns the hint with commands that name this place.
func (p placed) located(hint string) string { return show.Flags(p.typed).Located(hint) }

// advice is like located, for the hint of an error. For a place of --also, the hint's commands have the other flags
// of the command line, too.
func (p placed) advice(r *show.Reporter, hint string) string {
	if p.typed["repo"]+p.typed["name"]+p.typed["config"] != "" {
		return p.located(hint)
	}
	flags := show.Flags{"also": p.typed["also"]}
	maps.Copy(flags, r.Flags)
	return flags.Located(hint)
}

// unopened is a system that couldn't be opened, with the error.
type unopened struct{ err error }

func (u unopened) Status(context.Context) ([]replock.Info, error) { return nil, u.err }

func (u unopened) Break(context.Context, replock.BreakOptions) ([]replock.Broken, error) {
	return nil, u.err
}

// systems opens the repository, if there is one, and the systems of --also. A system that can't be opened returns its
// error when it is asked for locks, so that the others are still asked. err is set only if the command line is wrong.
// closeAll closes the connections.
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
	add := func(s system, p session.Place, failed error, typed map[string]string) {
		if failed != nil {
			s = unopened{failed}
			if fault.Of(failed).Exit == fault.ExitUsage {
				err = cmp.Or(err, failed)
			}
		}
		all = append(all, placed{system: s, Place: p, typed: typed})
	}
	if !g.alone(targets) {
		l, failed := g.locker()
		add(l, g.place(), failed, g.Typed)
	}
	for _, t := range targets {
		if t.Repository() {
			l, failed := g.at(t.Place).locker()
			add(l, t.Place, failed, map[string]string{"repo": t.Place.Repo, "name": t.Place.Name})
			continue
		}
		l, failed := t.Open(also.Request{Purpose: purpose})
		if failed == nil {
			open = append(open, l)
		}
		add(l, t.Place, failed, map[string]string{"also": t.Place.URL})
	}
	return all, closeAll, err
}

// everySystem opens all repositories of the configuration file, sorted by name, and then the systems of --also.
func (g global) everySystem(urls []string, purpose also.Purpose) (all []placed, closeAll func(), err error) {
	g.Repo, g.Unknown = "", nil
	closeAll = func() {}
	if len(urls) > 0 {
		if all, closeAll, err = g.systems(urls, purpose); err != nil {
			return nil, closeAll, err
		}
	}
	var listed []placed
	for _, name := range slices.Sorted(maps.Keys(g.File.Repositories)) {
		entry := g.File.Repositories[name]
		at := session.Place{Repo: entry.URL, Name: cmp.Or(entry.Name, g.Name)}
		l, failed := g.at(at).locker()
		one := placed{l, at, map[string]string{"config": g.Typed["config"], "repo": name, "name": g.Typed["name"]}, name}
		if failed != nil {
			one.system = unopened{failed}
		}
		listed = append(listed, one)
	}
	return append(listed, all...), closeAll, nil
}

// found is a lock with the system in which it was found.
type found struct {
	show.Lock
	at placed
}

// locksOf returns the locks without their systems.
func locksOf(all []found) []show.Lock {
	locks := make([]show.Lock, len(all))
	for i, l := range all {
		locks[i] = l.Lock
	}
	return locks
}

// everywhere calls f with each system. Meanwhile it shows does, which describes the work. It returns the locks that f
// returned, the systems for which f returned no error, and the errors of the others. The advice of an error names the
// place where the error occurred.
func everywhere(r *show.Reporter, does string, all []placed, f func(placed) ([]replock.Broken, error)) (list []found, answered []placed, err error) {
	places := make([]session.Place, len(all))
	for i, one := range all {
		places[i] = one.Place
	}
	r.BeginWait(does, session.Titles(places))
	defer r.EndWait()
	advice, differs := "", false
	for _, one := range all {
		some, failed := f(one)
		list = slices.Grow(list, len(some))
		for i := range some {
			list = append(list, found{show.Lock{Broken: &some[i], Place: label(all, one), Title: title(r, all, one)}, one})
		}
		if failed == nil {
			answered = append(answered, one)
			continue
		}
		if where := title(r, all, one); len(all) > 1 && where != "" {
			failed = fault.Errorf("%s: %w", where, failed)
		}
		hint := cmp.Or(one.advice(r, r.Advice(failed)), fault.SeeNothing)
		differs = differs || err != nil && hint != advice
		advice = hint
		err = fault.Join(err, fault.Advise(failed, advice))
	}
	if differs { // no hint fits all
		err = fault.Advise(err, fault.SeeNothing)
	}
	return list, answered, err
}

// label names a place in a list of locks. It returns "" for a repository if there is no other place.
func label(all []placed, one placed) string {
	switch {
	case one.URL != "" || len(all) == 1:
		return one.URL
	case one.Name != "":
		return "repo:" + one.Where() + "#" + one.Name // as in --also
	default:
		return one.Where()
	}
}

// title names a place for people. If there are several places, that is the repository's name in the configuration file.
// A repository without such a name, --verbose and --json have label's name.
func title(r *show.Reporter, all []placed, one placed) string {
	if one.listed != "" && len(all) > 1 && !r.Verbose && !r.JSON {
		return one.listed
	}
	return label(all, one)
}

// looked lists the places that were searched for locks, one a line. It uses their names in the configuration file, or
// with verbose their URLs.
func looked(all []placed, verbose bool) (lines string) {
	for _, one := range all {
		where := one.Looked()
		if one.listed != "" && !verbose {
			where = "looked in " + one.listed + ", " + one.Prefix() + "lock*"
		}
		lines += text.Escape(where) + "\n"
	}
	return lines
}

// isFleet reports whether a place is of tower-fleet. Even a stale lock of tower-fleet blocks, unless --force-lock
// steals it.
func isFleet(p session.Place) bool { return strings.HasPrefix(p.URL, towerfleet.Scheme+":") }
