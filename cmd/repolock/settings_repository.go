package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

type repository struct {
	url  string // or a path
	err  error  // why it is unknown; returned when it is opened
	name string // of the lock, in the file
}

var nameSyntax = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// isName reports whether a word can be a repository's name in the configuration file. It
// can be a directory's, too.
func isName(word string) bool { return nameSyntax.MatchString(word) }

// wanted returns the repository of the command line or the environment, and whether there
// is one: the file doesn't replace an empty one.
func wanted(ctx *kong.Context) (word string, ok bool) {
	for _, p := range ctx.Path {
		if p.Positional != nil && p.Positional.Name == "url" {
			return ctx.Value(p).String(), true
		}
	}
	return given(ctx, "repo")
}

// find finds the repository that a word means, and its values of flags. It refuses a name
// that is also a directory's: two users who mean one repository must not lock two.
func (s *settings) find(word string, given bool) *repository {
	file := s.file
	if file == nil {
		file = &config.File{}
	}
	s.values = values(file.Defaults)
	if !given {
		word = file.Repo
	}
	entry, ok := file.Repositories[word]
	if given && isName(word) { // unlike a name in the file, it can mean a directory
		info, err := os.Stat(word)
		switch isDir := err == nil && info.IsDir(); {
		case ok && isDir:
			return &repository{url: word, err: fault.New(fault.Usage, "%q is a repository in %s (%s), and a directory here: write ./%s for the directory, or give the other's URL", word, file.Path, session.Redact(entry.URL), word)}
		case !ok && errors.Is(err, fs.ErrNotExist):
			return &repository{url: word, err: fault.New(fault.NotFound, "%q: there is no such directory here, and %s", word, s.unlisted())}
		case isDir:
			word = "./" + word // in the command's environment it must not be a name again
		}
	}
	if !ok {
		return &repository{url: word}
	}
	maps.Copy(s.values, values(entry.Flags))
	if entry.Name != "" {
		s.values["name"] = entry.Name
	}
	return &repository{url: entry.URL, name: entry.Name}
}

func (s *settings) unlisted() string {
	if s.file == nil {
		return "no configuration file that could name a repository so (it would be " + strings.Join(config.Places(), ", or ") + ")"
	}
	return fmt.Sprintf("no repository of that name in %s, which has: %s", s.file.Path, listed(s.file))
}

func listed(f *config.File) string {
	if len(f.Repositories) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(f.Repositories)), ", ")
}

func (g global) store(ctx context.Context) (store.Store, error) {
	switch {
	case g.unknown != nil:
		return nil, g.unknown
	case g.Repo == "":
		return nil, fault.New(fault.Usage, "no repository: give --repo, or set REPOLOCK_REPO, or name one in the configuration file (repo = …)")
	}
	s, err := open.Store(ctx, g.Repo)
	switch {
	case errors.Is(err, store.ErrNotFound) && misnamed(g.Repo) != "":
		return nil, fault.Advise(fault.While("opening the repository", err), misnamed(g.Repo))
	case errors.Is(err, store.ErrURL):
		return nil, err
	case err != nil:
		return nil, fault.While("opening the repository", err)
	}
	return s, nil
}
