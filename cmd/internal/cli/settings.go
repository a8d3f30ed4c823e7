package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// settings resolves flags from the configuration file. Kong calls Resolve for each flag that the command line
// doesn't have.
type settings struct {
	reader  *Reader
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

// Unheeded returns a warning about each variable that is named after a flag, but that repolock doesn't read. Without
// the warning, a job whose REPOLOCK_WAIT is ignored would run in silence. If all is set, a last line has the other
// variables that begin with REPOLOCK_.
func (r *Reader) Unheeded(environ []string, all bool) (says []string) {
	var unknown, read []string
	for _, item := range r.Environment {
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
	if unknown == nil { // the usual case; building the flags of all commands takes long
		return nil
	}
	app := r.Model()
	flags := app.Flags
	for _, node := range app.Children {
		flags = append(flags, Visible(node.Flags)...)
	}
	var strange []string
	for _, name := range unknown {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "REPOLOCK_"), "_", "-"))
		flag = cmp.Or(strings.TrimPrefix(meant(flagsElsewhere, flag), "--"), flag)
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == flag })
		if i < 0 {
			meant := slices.IndexFunc(read, func(ours string) bool { return text.Misspells(name, ours) })
			like := slices.IndexFunc(flags, func(f *kong.Flag) bool { return text.Misspells(flag, f.Name) })
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
var ofTests = lazyregexp.New(`^REPOLOCK_(E2E_|TEST_|GUARD_|GUEST_TTL$)`)

// variable returns the variable of the environment that is set for a flag, or "".
func variable(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// applies reports whether the file's value of a flag fits the command line. --hint replaces two flags. --if-held wait
// implies --wait. A command that deletes must not run without its lock. torture uses locks of its own.
func applies(ctx *kong.Context, flag *kong.Flag) bool {
	command := ctx.Selected().Name
	switch flag.Name {
	case "if-held":
		return !onCommandLine(ctx, "hint")
	case "if-unreachable":
		shared := command == "backup" || command == "restore" || onCommandLine(ctx, "shared")
		return !onCommandLine(ctx, "hint") && (shared || ctx.Selected().Hidden) // the mode of the unnamed command isn't known yet
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
			err = s.reader.check(s.file)
		}
		if explicit && errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: --config or REPOLOCK_CONFIG names this file", err)
			if hint := Unexpanded(path); hint != "" {
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
func (r *Reader) check(f *config.File) error {
	checkFlags := r.flagCheck()
	if err := checkFlags(f.Defaults); err != nil {
		return fmt.Errorf("%s: [defaults] %w", at(f, err, "defaults"), err)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Repositories)) {
		entry := f.Repositories[name]
		err := checkFlags(entry.Flags)
		switch {
		case !isName(name):
			err = errors.New("a repository's name has letters, digits, dots, hyphens and underscores, and begins with a letter or a digit")
		case err == nil && entry.Name != "":
			if wrong := replock.CheckName(entry.Name); wrong != nil {
				err = &keyError{"name", wrong}
			}
		}
		if bucket := strings.HasPrefix(entry.URL, "s3:") || strings.HasPrefix(entry.URL, "minio:"); err == nil && !bucket && entry.SSE+entry.SSEKey+entry.ACL != "" {
			err = wrongKey("url", "sse, sse-key and acl need an s3: or a minio: URL")
		}
		if err == nil {
			err = checkURL("url", entry.URL)
		}
		if err != nil {
			return fmt.Errorf("%s: [repositories.%.80q] %w", at(f, err, "repositories", name), name, err)
		}
	}
	if _, ok := f.Repositories[f.Repo]; f.Repo != "" && !ok {
		if isName(f.Repo) {
			err := wrongKey("repo", "repo %q: the file has no repository of that name; it has: %s", f.Repo, listed(f))
			return fmt.Errorf("%s: %w", at(f, err), err)
		}
		if err := checkURL("repo", f.Repo); err != nil {
			return fmt.Errorf("%s: %w", at(f, err), err)
		}
	}
	return nil
}

// keyError is an error about a key of the configuration file.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// wrongKey returns a keyError whose text is formatted as by fmt.Errorf.
func wrongKey(key, format string, args ...any) error {
	return &keyError{key, fmt.Errorf(format, args...)}
}

// at returns the path of a file, and the line of the key of an error. An error without a key is about the whole table.
func at(f *config.File, err error, table ...string) string {
	if wrong, ok := errors.AsType[*keyError](err); ok {
		table = append(table, wrong.key)
	}
	return fmt.Sprintf("%s:%d", f.Path, f.Line(table...))
}

// checkURL refuses a relative path, and a URL with credentials.
func checkURL(key, raw string) error {
	if raw == "" {
		return wrongKey(key, "%s: is missing", key)
	}
	if err := open.Check(raw); err != nil {
		return wrongKey(key, "%s: %w", key, err)
	}
	if l, _ := open.Parse(raw); l.Scheme == "file" && !filepath.IsAbs(l.Path) {
		return wrongKey(key, "%s: must be a URL or an absolute path", key)
	}
	return nil
}

// Configurable is a command with the flags that the configuration file can set.
type Configurable interface {
	Check() error             // refuses values of the flags
	Files() map[string]string // values of the flags that are paths
}

// flagCheck returns a function that refuses values that the command line refuses, and values that only the
// command line may have. The function parses them as the flags of a command.
func (r *Reader) flagCheck() func(config.Flags) error {
	flags := r.Configured()
	var values map[string]any
	parser := kong.Must(flags, append((&feed{}).mappers(), r.vars(nil), kong.NoDefaultHelp(), kong.Resolvers(kong.ResolverFunc(
		func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) { return values[flag.Name], nil })))...)
	return func(f config.Flags) error {
		if held := f.IfHeld; held != nil && !slices.Contains([]string{"", "fail", "skip"}, *held) {
			return wrongKey("if-held", `if-held %.80s: must be fail or skip; waiting is wait = "forever"`, *held)
		}
		values = f.Values()
		_, err := parser.Parse([]string{"--", "command"})
		if err == nil {
			err = flags.Check()
		}
		if wrong, ok := errors.AsType[*FlagError](err); ok {
			return wrongKey(wrong.Flag, "%s", wrong.inFile())
		}
		if err != nil {
			return r.Mistaken(err, nil)
		}
		for name, path := range flags.Files() {
			if _, ok := values[name]; ok && path != "" && !filepath.IsAbs(path) {
				return wrongKey(name, "%s %q: must be an absolute path", name, path)
			}
		}
		for key := range f.Metadata {
			if config.Secret(key) {
				return wrongKey("metadata", "metadata %.80q: other users can read it, so don't put credentials there", key)
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

// wanted returns the repository of the command line or the environment. ok is true even if it is empty, so that the
// file's repository doesn't replace it.
func wanted(ctx *kong.Context) (word string, ok bool) {
	for _, p := range ctx.Path {
		if p.Positional != nil && p.Positional.Name == "url" {
			return ctx.Value(p).String(), true
		}
	}
	return given(ctx, "repo")
}

// find finds the repository that a word names, and its values of flags. A name in the file means its repository even
// if a directory has the same name. Otherwise two users who mean one repository could lock two.
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
				if text.Misspells(word, name) {
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

// ConfigFile returns the configuration file that a command line reads, or nil if there is none or it is wrong.
func (r *Reader) ConfigFile(args []string) *config.File {
	from := &settings{reader: r}
	if _, err := r.NewParser(&Globals{}, args, kong.Resolvers(from)).Parse(args); err != nil {
		return nil
	}
	return from.file
}
