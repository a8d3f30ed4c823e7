package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// global has the flags of all commands, and opens the repository that they name.
type global struct {
	cli.Globals
	observe func(replock.Event) // gets the events of reading locks; nil: they are dropped
	beside  string              // the program whose repository the place is beside, or ""
	by      string              // the program's variable or argument that names the repository, or ""
	// onlyLocks is set if a program's own place has nothing but locks.
	onlyLocks bool
}

// shown returns the values that decide what is shown.
func (g global) shown() show.Options {
	return show.Options{JSON: g.JSON, Quiet: g.Quiet, Verbose: g.Verb, Place: g.place(), Flags: g.Typed}
}

func (g global) place() session.Place {
	return session.Place{Repo: g.Repo, Name: g.Name, Listed: g.Listed}
}

func (g global) locker() (*replock.Locker, error) {
	s, err := g.store(context.Background())
	if err != nil {
		return nil, err
	}
	return g.lockerOn(s, replock.Options{Observe: g.observe})
}

func (g global) lockerOn(s store.Store, opts replock.Options) (*replock.Locker, error) {
	opts.Name, opts.Version = g.Name, newBuild().Version
	l, err := replock.New(s, opts)
	if err != nil {
		return nil, fault.As(fault.Usage, err)
	}
	return l, nil
}

var errNoRepository = fault.New(fault.Usage, "no repository: give --repo, or set REPOLOCK_REPO, or name one in the configuration file (repo = …)")

// store opens the repository.
func (g global) store(ctx context.Context) (store.Store, error) {
	switch {
	case g.Unknown != nil:
		return nil, g.Unknown
	case g.Repo == "" && g.Sources["repo"].Variable != "":
		return nil, fault.New(fault.Usage, "no repository: %s is set and empty: set it to a repository, or unset it, or give --repo", g.Sources["repo"].Variable)
	case g.Repo == "":
		err := errNoRepository
		if g.File != nil && len(g.File.Repositories) > 0 {
			names := slices.Sorted(maps.Keys(g.File.Repositories))
			err = fault.Advise(err, fmt.Sprintf("%s lists repositories: write -r %s", g.File.Path, strings.Join(names[:min(len(names), 3)], ", or -r ")))
		}
		return nil, err
	}
	s, err := open.Store(ctx, g.Repo)
	switch {
	case errors.Is(err, store.ErrNotFound) && g.beside != "":
		return nil, fault.Advise(fault.While("opening the repository", err), "the lock is beside the repository of "+g.beside+": make this directory once")
	case errors.Is(err, store.ErrNotFound) && cli.Misnamed(g.Repo) != "":
		return nil, fault.Advise(fault.While("opening the repository", err), cli.Misnamed(g.Repo))
	case errors.Is(err, store.ErrURL):
		return nil, err
	case err != nil:
		return nil, fault.While("opening the repository", err)
	}
	return s, nil
}

// namedBy returns the variable or the file that names the repository, or "" if the command line does.
func (g global) namedBy() string {
	if g.OnLine("repo") {
		return ""
	}
	if from := g.Sources["repo"].Variable; from != "" || g.File == nil {
		return from
	}
	return g.File.Path
}

// spell returns words as a shell reads them.
func spell(args []string) string {
	var words []string
	for _, a := range args {
		words = append(words, text.Word(a))
	}
	return strings.Join(words, " ")
}

// onSignals calls ends with each signal that would end repolock, until stop is called.
func onSignals(ends func(sig os.Signal, stop func())) (stop func()) {
	signals, stop := procgroup.Signals()
	go func() {
		for sig := range signals {
			if session.Ends(sig) {
				ends(sig, stop)
			}
		}
	}()
	return stop
}

// twoRepositories is the error of doctor or torture if both --repo and the argument name a repository.
var twoRepositories = fault.New(fault.Usage, "two repositories are given, by --repo and as an argument: leave out one")
