package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// settings resolves flags from the configuration file. Kong calls Resolve for each flag that the command line
// doesn't have.
type settings struct {
	file    *config.File      // nil: there is no file, or the command reads none
	repo    *repository       // nil: the command line wasn't resolved
	values  map[string]any    // of the flags in the file
	sources map[string]source // of the flags that the command line doesn't have; nil before load
	notice  string            // about the repository, for people
}

// source is the variable of the environment or the configuration file that has the value of a flag. The zero
// source means that the flag has its default.
type source struct{ Variable, File string }

func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve returns the file's value of a flag that is tagged with config. It returns nil if the environment has a
// value, because Kong would prefer the file's.
func (s *settings) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if s.sources == nil {
		s.sources = map[string]source{}
		if err := s.load(ctx); err != nil {
			return nil, err
		}
	}
	from := source{Variable: variable(flag)}
	value, ok := s.values[flag.Name]
	if ok = ok && from.Variable == "" && flag.Tag.Has("config") && applies(ctx, flag); !ok {
		value = nil
	} else if s.file != nil {
		from.File = s.file.Path
	}
	s.sources[flag.Name] = from
	return value, nil
}

// isDefault reports whether a flag has its default, and no other source has a value for it.
func (g global) isDefault(flag string) bool {
	from, ok := g.Sources[flag]
	return ok && from == source{}
}

// typed reports whether the command line has a flag.
func (g global) typed(flag string) bool {
	_, resolved := g.Sources[flag]
	return g.Sources != nil && !resolved
}

// unheeded returns a warning about each variable that is named after a flag but that repolock doesn't read,
// because a job must not run without its REPOLOCK_WAIT in silence. If all is set, a last line has the other
// variables that begin with REPOLOCK_.
func unheeded(environ []string, all bool) (says []string) {
	var unknown, read []string
	for _, item := range manEnvironment {
		if name, _, ok := strings.Cut(item, ":"); ok && strings.HasPrefix(name, "REPOLOCK_") {
			read = append(read, name)
		}
	}
	known := slices.Concat(read, session.Variables)
	if !slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "REPOLOCK_OUTER=") }) { // not set by a repolock
		known = slices.DeleteFunc(known, func(name string) bool { return name == "REPOLOCK_NAME" })
	}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "REPOLOCK_") && !slices.Contains(known, name) && !ofTests.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	if unknown == nil { // as nearly always: the flags of all commands take long to build
		return nil
	}
	app := model()
	flags := app.Flags
	for _, node := range app.Children {
		flags = append(flags, visible(node.Flags)...)
	}
	var strange []string
	for _, name := range unknown {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "REPOLOCK_"), "_", "-"))
		flag = cmp.Or(strings.TrimPrefix(meant(flagsElsewhere, flag), "--"), flag)
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == flag })
		if i < 0 {
			meant := slices.IndexFunc(read, func(ours string) bool { return misspells(name, ours) })
			like := slices.IndexFunc(flags, func(f *kong.Flag) bool { return misspells(flag, f.Name) })
			switch {
			case meant >= 0:
				name += " (did you mean " + read[meant] + "?)"
			case like >= 0:
				name += " (did you mean the flag --" + flags[like].Name + "?)"
			}
			strange = append(strange, name)
			continue
		}
		ours := "the flag is --" + flag
		if len(flags[i].Envs) > 0 {
			ours = "the variable is " + flags[i].Envs[0]
		}
		says = append(says, name+" isn't a variable of repolock, and has no effect; "+ours)
	}
	if all && strange != nil {
		more := ""
		if n := len(strange) - 3; n > 0 {
			strange, more = strange[:3], fmt.Sprintf(" and %d more", n)
		}
		says = append(says, "repolock doesn't read "+strings.Join(strange, ", ")+more+"; see repolock help env")
	}
	return says
}

// ofTests matches the variables of repolock's own guard, and of its tests.
var ofTests = lazyregexp.New(`^REPOLOCK_(E2E_|TEST_|GUARD_|TORTURE$|GUEST_TTL$)`)

// variable returns the variable of the environment that is set for a flag, or "".
func variable(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// applies reports whether the file's value of a flag fits the command line: --hint replaces other flags,
// --if-held wait implies --wait, a command that deletes needs its lock, and torture has locks of its own.
func applies(ctx *kong.Context, flag *kong.Flag) bool {
	command := ctx.Selected().Name
	switch flag.Name {
	case "if-held":
		return !onCommandLine(ctx, "hint")
	case "if-unreachable":
		return !onCommandLine(ctx, "hint") && (command == "backup" || command == "restore" || onCommandLine(ctx, "shared"))
	case "wait":
		return !onCommandLine(ctx, "if-held") || ctx.FlagValue(flagOf(ctx.Selected(), "if-held")) != "wait"
	case "name":
		return command != "torture"
	default:
		return true
	}
}

func onCommandLine(ctx *kong.Context, name string) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == name && !p.Resolved })
}

// load reads the configuration file, unless the command needs none, and finds the repository.
func (s *settings) load(ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil || node.Tag.Has("noconfig") {
		return nil
	}
	path, explicit := given(ctx, "config")
	if !explicit {
		path = config.Find()
	}
	if path != "" {
		var err error
		if s.file, err = config.Load(path); err == nil {
			err = check(s.file)
		}
		if explicit && errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: --config or REPOLOCK_CONFIG names this file", err)
			if hint := unexpanded(path); hint != "" {
				err = fmt.Errorf("%w, and %s", err, hint)
			}
		}
		if err != nil {
			return fault.New(fault.WrongFile, "configuration: %w", err)
		}
	}
	word, given := wanted(ctx)
	s.repo = s.find(word, given)
	if !onCommandLine(ctx, "repo") && s.repo.err == nil && s.repo.name == "" && word == os.Getenv("REPOLOCK_REPO") {
		if name := session.NameOfOuter(word); name != "" { // the name of the lock that we run under
			s.repo.name, s.values["name"] = name, name
		}
	}
	return nil
}

// given returns the value of a flag, and reports whether the command line or the environment sets it.
func given(ctx *kong.Context, name string) (value string, ok bool) {
	flag := flagOf(ctx.Model.Node, name)
	return ctx.FlagValue(flag).(string), onCommandLine(ctx, name) || variable(flag) != ""
}

func flagOf(node *kong.Node, name string) *kong.Flag {
	i := slices.IndexFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == name })
	return node.Flags[i]
}

// check checks the whole file, including the parts that the command doesn't use.
func check(f *config.File) error {
	checkFlags := flagCheck()
	if err := checkFlags(f.Defaults); err != nil {
		return fmt.Errorf("%s: [defaults] %w", at(f, err, "defaults"), err)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Repositories)) {
		r := f.Repositories[name]
		err := checkFlags(r.Flags)
		switch {
		case !isName(name):
			err = errors.New("a repository's name has letters, digits, dots, hyphens and underscores, and begins with a letter or a digit")
		case err == nil && r.Name != "":
			err = replock.CheckName(r.Name)
		}
		if err == nil {
			err = checkURL("url", r.URL)
		}
		if err != nil {
			return fmt.Errorf("%s: [repositories.%.80q] %w", at(f, err, "repositories", name), name, err)
		}
	}
	if _, ok := f.Repositories[f.Repo]; f.Repo != "" && !ok {
		if isName(f.Repo) {
			err := fmt.Errorf("repo %q: the file has no repository of that name; it has: %s", f.Repo, listed(f))
			return fmt.Errorf("%s: %w", at(f, err), err)
		}
		if err := checkURL("repo", f.Repo); err != nil {
			return fmt.Errorf("%s: %w", at(f, err), err)
		}
	}
	return nil
}

// at returns the path of a file, and the line of the key with which an error of a table begins.
func at(f *config.File, err error, table ...string) string {
	key, _, _ := strings.Cut(err.Error(), " ")
	key = strings.TrimPrefix(strings.TrimSuffix(key, ":"), "lock") // "lock name"
	return fmt.Sprintf("%s:%d", f.Path, f.Line(append(table, cmp.Or(key, "name"))...))
}

// checkURL refuses a relative path, and a URL with credentials.
func checkURL(key, raw string) error {
	if raw == "" {
		return fmt.Errorf("%s: is missing", key)
	}
	if err := open.Check(raw); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if l, _ := open.Parse(raw); l.Scheme == "file" && !filepath.IsAbs(l.Path) {
		return fmt.Errorf("%s: must be a URL or an absolute path", key)
	}
	return nil
}

// flagCheck returns a function that refuses values that the command line refuses, and values that only the
// command line may have. The function parses them as the flags of a command.
func flagCheck() func(config.Flags) error {
	var flags wrapCmd
	var values map[string]any
	parser := kong.Must(&flags, append(mappers(), vars(nil), kong.NoDefaultHelp(), kong.Resolvers(kong.ResolverFunc(
		func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) { return values[flag.Name], nil })))...)
	return func(f config.Flags) error {
		if held := f.IfHeld; held != nil && !slices.Contains([]string{"", "fail", "skip"}, *held) {
			return fmt.Errorf(`if-held %.80s: must be fail or skip; waiting is wait = "forever"`, *held)
		}
		values = f.Values()
		_, err := parser.Parse([]string{"--", "command"})
		if err == nil {
			err = flags.check()
		}
		if err != nil {
			return errors.New(strings.TrimPrefix(mistaken(err, nil).Error(), "--"))
		}
		for name, path := range map[string]string{"audit": flags.Audit, "metrics-file": flags.Metrics} {
			if _, ok := values[name]; ok && path != "" && !filepath.IsAbs(path) {
				return fmt.Errorf("%s %q: must be an absolute path", name, path)
			}
		}
		for key := range f.Metadata {
			if config.Secret(key) {
				return fmt.Errorf("metadata %.80q: other users can read it, so don't put credentials there", key)
			}
		}
		return nil
	}
}

type repository struct {
	url  string // or a path
	err  error  // why no repository has this name; returned when it is opened
	name string // of the lock, in the file
}

var nameSyntax = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// isName reports whether a word can be a repository's name in the configuration file. A directory can have the
// same name.
func isName(word string) bool { return nameSyntax.MatchString(word) }

// wanted returns the repository of the command line or the environment, and reports whether one of them has it. An
// empty one counts, so that the file doesn't replace it.
func wanted(ctx *kong.Context) (word string, ok bool) {
	for _, p := range ctx.Path {
		if p.Positional != nil && p.Positional.Name == "url" {
			return ctx.Value(p).String(), true
		}
	}
	return given(ctx, "repo")
}

// find finds the repository that a word names, and its values of flags. A name in the file means its repository
// everywhere, also where a directory has the same name: two users who mean one repository must not lock two.
func (s *settings) find(word string, given bool) *repository {
	file := s.file
	if file == nil {
		file = &config.File{}
	}
	s.values = file.Defaults.Values()
	if !given {
		word = file.Repo
	}
	entry, ok := file.Repositories[word]
	if given && isName(word) { // a word that isn't from the file can also name a directory
		info, err := os.Stat(word)
		switch isDir := err == nil && info.IsDir(); {
		case ok && isDir:
			s.notice = fmt.Sprintf("%q is the repository %s, which %s lists, and not the directory here: write ./%[1]s for the directory", word, session.Redact(entry.URL), file.Path)
		case !ok && errors.Is(err, fs.ErrNotExist):
			err := fault.New(fault.NotFound, "%q: there is no such directory here, and %s", word, s.unlisted())
			for _, name := range slices.Sorted(maps.Keys(file.Repositories)) {
				if misspells(word, name) {
					err = fault.Advise(err, "did you mean "+name+"?")
				}
			}
			return &repository{url: word, err: err}
		case isDir:
			word = "./" + word // so that it isn't a name in the environment of the command
		}
	}
	if !ok {
		return &repository{url: word}
	}
	maps.Copy(s.values, entry.Flags.Values())
	if entry.Name != "" {
		s.values["name"] = entry.Name
	}
	return &repository{url: entry.URL, name: entry.Name}
}

func (s *settings) unlisted() string {
	if s.file == nil {
		return "no configuration file that could list the name (it would be " + strings.Join(config.Places(), ", or ") + ")"
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
	case g.Repo == "" && g.Sources["repo"].Variable != "":
		return nil, fault.New(fault.Usage, "no repository: %s is set and empty: set it to a repository, or unset it, or give --repo", g.Sources["repo"].Variable)
	case g.Repo == "":
		err := fault.New(fault.Usage, "no repository: give --repo, or set REPOLOCK_REPO, or name one in the configuration file (repo = …)")
		if g.file != nil && len(g.file.Repositories) > 0 {
			names := slices.Sorted(maps.Keys(g.file.Repositories))
			err = fault.Advise(err, fmt.Sprintf("%s lists repositories: write -r %s", g.file.Path, strings.Join(names[:min(len(names), 3)], ", or -r ")))
		}
		return nil, err
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

type reposCmd struct{}

// jsonRepos is the result of repos in JSON. Fields are only ever added.
type jsonRepos struct {
	File         string     `json:"file,omitempty"`
	LookedFor    []string   `json:"looked_for,omitempty"` // if there is no file
	Default      string     `json:"default,omitempty"`
	Repositories []jsonRepo `json:"repositories"`
}

type jsonRepo struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	LockName string `json:"lock_name"`
}

func (reposCmd) run(r *show.Reporter, g global) (int, error) {
	out := jsonRepos{Repositories: []jsonRepo{}}
	if g.file == nil {
		out.LookedFor = config.Places()
	} else {
		out.File, out.Default = g.file.Path, session.Redact(g.file.Repo)
		for _, name := range slices.Sorted(maps.Keys(g.file.Repositories)) {
			listed := g.file.Repositories[name]
			out.Repositories = append(out.Repositories, jsonRepo{name, session.Redact(listed.URL), events.LockName(listed.Name)})
		}
	}
	return 0, r.Result(out, out.words(show.ColumnsOf(os.Stdout)))
}

func (o jsonRepos) words(width int) string {
	if o.File == "" {
		return show.Folded(fmt.Sprintf("no configuration file; it would be %s\n", strings.Join(o.LookedFor, ", or ")), width)
	}
	rows := []string{"NAME\tREPOSITORY\tLOCK"}
	for _, repo := range o.Repositories {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", repo.Name, text.Escape(repo.URL), repo.LockName))
	}
	return show.Table(show.ColumnsOfRows(rows, map[string]show.Column{"NAME": {Least: 12}, "REPOSITORY": {Least: 20}}), width) +
		show.Folded(fmt.Sprintf("default: %s\nread from %s\n", text.Escape(text.Or(o.Default, "-")), text.Escape(o.File)), width)
}
