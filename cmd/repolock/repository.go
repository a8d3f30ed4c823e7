package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// repository is the one that a command is about.
type repository struct {
	url  string // or a path
	err  error  // it isn't known which; said when it is opened
	name string // of the lock, as the file has it
}

var nameSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// isName reports whether a word may be a repository's name in the configuration file. It
// may be a directory's, too.
func isName(word string) bool { return nameSyntax.MatchString(word) }

// wanted is the repository as the command line or the environment has it, and whether
// they do: an empty one isn't for the file to fill.
func wanted(ctx *kong.Context) (word string, given bool) {
	for _, p := range ctx.Path {
		if p.Positional != nil && p.Positional.Name == "url" {
			return ctx.Value(p).String(), true
		}
	}
	flag := flagOf(ctx.Model.Node, "repo")
	return ctx.FlagValue(flag).(string), onCommandLine(ctx, "repo") || inEnvironment(flag)
}

// missingError is a word that means nothing: a directory that isn't there, for all we know.
type missingError struct{ error }

func (e missingError) Unwrap() []error { return []error{e.error, store.ErrNotFound} }

// find finds the repository that a word means, and its values of flags. A name that is
// also a directory's is refused: two who mean one repository must not lock two.
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
	if given && isName(word) { // in the file, it can't mean a directory
		info, err := os.Stat(word)
		switch isDir := err == nil && info.IsDir(); {
		case ok && isDir:
			return &repository{url: word, err: usageError{fmt.Errorf("%q is a repository in %s (%s), and a directory here: write ./%s for the directory, or give the other's URL", word, file.Path, redact(entry.URL), word)}}
		case !ok && errors.Is(err, fs.ErrNotExist):
			return &repository{url: word, err: missingError{fmt.Errorf("%q: there is no such directory here, and %s", word, s.unlisted())}}
		case isDir:
			word = "./" + word // a name it can't be again, in the command's environment
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

// unlisted says where a name isn't.
func (s *settings) unlisted() string {
	if s.file == nil {
		return "no configuration file that could name a repository so (it would be " + strings.Join(config.Places(), ", or ") + ")"
	}
	return fmt.Sprintf("no repository of that name in %s, which has: %s", s.file.Path, listed(s.file))
}

// listed are the names of a file's repositories.
func listed(f *config.File) string {
	if len(f.Repositories) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(f.Repositories)), ", ")
}

// store opens the repository.
func (g global) store(ctx context.Context) (store.Store, error) {
	switch {
	case g.unknown != nil:
		return nil, g.unknown
	case g.Repo == "":
		return nil, usageError{errors.New("no repository: give --repo, or set REPOLOCK_REPO, or name one in the configuration file (repo = …)")}
	}
	s, err := open.Store(ctx, g.Repo)
	if err != nil {
		return nil, fmt.Errorf("opening the repository: %w", err)
	}
	return s, nil
}
