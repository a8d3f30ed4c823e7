// Package cli turns words, variables and the configuration file into values, or into an error that explains the
// mistake. It runs no command, opens no store and takes no lock. The program passes it the table of its commands, as
// a Reader.
package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/fault"
)

// Reader reads the command lines of a program.
type Reader struct {
	Groups      []Group             // all commands, in the order of the overview; help leaves out the last group
	Topics      []Topic             // texts of help
	Summary     string              // the beginning of the overview
	Variables   func() kong.Vars    // of help texts, ${name}
	Version     func() string       // what --version prints
	Environment []string            // "NAME: description" of the variables that the program reads
	Configured  func() Configurable // returns a new command with all flags that the configuration file can set
	Unnamed     string              // the command that runs a program which follows -- without a command before
}

// Group are commands with a title in the overview.
type Group struct {
	Title    string
	Commands []Entry
}

// Entry is a row of the table of commands.
type Entry struct {
	Name, Help string
	Command    any // a struct of flags and arguments, which have no values yet
	Tag        string
	// Example and Second are command lines for its help.
	Example, Second string
	Detail          string // paragraphs of its help
}

// Tags of commands.
const (
	NoConfig = `noconfig:""` // reads no configuration file
	Hidden   = `hidden:"" ` + NoConfig
	Unnamed  = `hidden:""` // of Reader.Unnamed
)

// IsHidden reports whether help leaves the command out.
func (e Entry) IsHidden() bool { return e.Tag == Hidden || e.Tag == Unnamed }

// Commands returns all commands.
func (r *Reader) Commands() (all []Entry) {
	for _, g := range r.Groups {
		all = append(all, g.Commands...)
	}
	return all
}

// named returns the commands whose names are among the words. Such a word can be the value of a flag.
func (r *Reader) named(words []string) (found []Entry) {
	for _, c := range r.Commands() {
		if slices.Contains(words, c.Name) {
			found = append(found, c)
		}
	}
	return found
}

// Called returns the first command that is named before --. Its name can be the value of a flag.
func (r *Reader) Called(args []string) (found Entry, ok bool) {
	commands := r.Commands()
	for _, word := range BeforeDashes(args) {
		for _, c := range commands {
			if c.Name == word {
				return c, true
			}
		}
	}
	return Entry{}, false
}

// Named returns a line that has a program after --, and no command before it, with the name of Unnamed in front. A word
// after an unknown flag can be the flag's value. Named returns any other line unchanged.
func (r *Reader) Named(args []string) []string {
	before := BeforeDashes(args)
	if len(args) < len(before)+2 || len(before) > 0 && !strings.HasPrefix(before[0], "-") {
		return args
	}
	at, unknown := r.argument(before)
	if _, called := r.Called(args); at < len(before) && (called || !unknown) {
		return args
	}
	return append([]string{r.Unnamed}, args...)
}

// argument returns the index of the first word that is neither a flag nor a flag's value, or len(words). unknown reports
// whether Unnamed lacks a flag before it.
func (r *Reader) argument(words []string) (at int, unknown bool) {
	if len(words) == 0 {
		return 0, false
	}
	app := r.NewParser(&Globals{}, []string{r.Unnamed}).Model
	flags := append(slices.Clone(NodeOf(app, r.Unnamed).Flags), app.Flags...)
	find := func(is func(*kong.Flag) bool) (valued, ok bool) {
		i := slices.IndexFunc(flags, is)
		return i >= 0 && !flags[i].IsBool(), i >= 0
	}
	for ; at < len(words); at++ {
		word := words[at]
		long, isLong := strings.CutPrefix(word, "--")
		name, _, written := strings.Cut(long, "=")
		valued, known := false, true
		switch {
		case !strings.HasPrefix(word, "-") || word == "-":
			return at, unknown
		case isLong:
			valued, known = find(func(f *kong.Flag) bool { return f.Name == name })
			valued = valued && !written
		default:
			for i, letter := range word[1:] {
				if valued, known = find(func(f *kong.Flag) bool { return f.Short == letter }); valued || !known {
					valued = valued && i+2 == len(word)
					break
				}
			}
		}
		unknown = unknown || !known
		if valued {
			at++
		}
	}
	return len(words), unknown
}

// Parsed is a command line that Parse has read.
type Parsed struct {
	Globals
	Selected *kong.Node // the command
	Helped   bool       // help was asked for, and printed
	Notice   string     // about the repository, for people
}

// Parse reads a command line. If it fails, it returns the flags that it has read so far.
func (r *Reader) Parse(args []string, stdout, stderr io.Writer) (*Parsed, error) {
	p, from := &Parsed{}, &settings{reader: r}
	options := []kong.Option{kong.Writers(stdout, stderr), kong.Exit(func(int) { p.Helped = true }), kong.Resolvers(from)}
	f := &feed{words: args}
	k, err := r.newParser(&p.Globals, args, f, options...).Parse(f.next())
	if err == nil && len(f.words) > 0 {
		panic("the parser has ended before the words") // can't happen: see feed.decode
	}
	if err == nil && !p.Helped {
		p.Selected = k.Selected()
		err = ambiguous(k)
	}
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && k == nil {
		k = wrong.Context
		k.Args = args[:len(args)-len(f.words)] // the words that the parser has seen
	}
	p.File, p.Sources, p.Typed, p.Notice = from.file, from.sources, typed(k), from.notice
	if repo := from.repo; repo != nil {
		p.Repo, p.Unknown, p.Listed = repo.url, repo.err, repo.name
	}
	return p, err
}

// typed returns the global flags of the command line that have a value, by their names. The argument of doctor
// counts as --repo.
func typed(k *kong.Context) map[string]string {
	all := map[string]string{}
	if k == nil {
		return all
	}
	for _, p := range k.Path {
		switch {
		case p.Flag != nil && !p.Resolved && slices.Contains([]string{"repo", "name", "config"}, p.Flag.Name):
			all[p.Flag.Name], _ = k.FlagValue(p.Flag).(string)
		case p.Positional != nil && p.Positional.Name == "url":
			all["repo"] = k.Value(p).String()
		}
	}
	return all
}

// NewParser returns a parser for these words. It knows the commands that the words name, and no others, because
// building them takes most of its time. If the words name none, it knows all, but not their flags.
func (r *Reader) NewParser(g *Globals, words []string, options ...kong.Option) *kong.Kong {
	return r.newParser(g, words, &feed{}, options...)
}

// newParser is NewParser, but the parser gets some of the words later, from a feed.
func (r *Reader) newParser(g *Globals, words []string, f *feed, options ...kong.Option) *kong.Kong {
	options = slices.Concat(options, f.mappers(), []kong.Option{r.vars(BeforeDashes(words)), kong.Help(r.printHelp), kong.Bind(versionText(r.Version))})
	known := r.named(BeforeDashes(words))
	if known == nil {
		known = r.named(words)
	}
	flagless := known == nil
	if flagless {
		known = r.Commands()
	}
	for _, c := range known {
		target := reflect.New(reflect.TypeFor[struct{}]())
		if !flagless {
			target = reflect.New(reflect.TypeOf(c.Command))
			target.Elem().Set(reflect.ValueOf(c.Command))
		}
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", target.Interface(), c.Tag))
	}
	parser := kong.Must(g, options...)
	for i, c := range known {
		parser.Model.Children[i].Detail = c.Detail
	}
	parser.Model.Name = "repolock"
	parser.Model.Help = "Run a backup, restore or prune while holding a lock that is kept in the backup repository itself."
	parser.Model.HelpFlag.Help = "Show the help of a command, and exit."
	return parser
}

// vars are the variables of help texts. They are empty if the words don't ask for help: kong expands each variable once
// for each flag, which takes time.
func (r *Reader) vars(words []string) kong.Vars {
	all := r.Variables()
	if !slices.ContainsFunc(words, mayHelp) {
		for name := range all {
			all[name] = ""
		}
	}
	return all
}

// mayHelp reports whether a word asks for help: the command help, --help, or -h among other flags.
func mayHelp(word string) bool {
	return word == "help" || word == "--help" || strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "h")
}

// BeforeDashes returns the words before --, which belong to repolock and not to the wrapped command.
func BeforeDashes(args []string) []string {
	if end := slices.Index(args, "--"); end >= 0 {
		return args[:end]
	}
	return args
}

// Model describes all commands with their flags.
func (r *Reader) Model() *kong.Application { return r.NewParser(&Globals{}, r.Names()).Model }

// Names returns the names of all commands.
func (r *Reader) Names() (all []string) {
	for _, c := range r.Commands() {
		all = append(all, c.Name)
	}
	return all
}

// feed passes words to kong a few at a time. Kong copies all words that it has, at each word that it reads: a command
// line of 16,000 words would cost seconds. The zero feed has no words.
type feed struct {
	words []string // that kong doesn't have yet; none when it reads variables and the configuration file
}

// Numbers of words.
const (
	fed    = 64 // the feed passes at once
	needed = 8  // kong must have, unless the line ends: it reads fewer words from one value to the next, or to an error
)

// next returns the next words for kong.
func (f *feed) next() []string {
	now := f.words[:min(fed, len(f.words))]
	f.words = f.words[len(now):]
	return now
}

// decode reads a value. Before, it gives the scanner more words if it has few. Kong gets only the first words of the
// command to run.
func (f *feed) decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Value.Passthrough {
		var all []string
		for _, token := range ctx.Scan.PopWhile(func(t kong.Token) bool { return !t.IsEOL() }) {
			all = append(all, token.String())
		}
		all, f.words = append(all, f.words...), nil
		target.Set(reflect.ValueOf(all))
		return nil
	}
	if len(f.words) > 0 && ctx.Scan.Len() < needed {
		tokens := slices.Clone(ctx.Scan.PeekAll())
		for _, word := range f.next() {
			tokens = append(tokens, kong.Token{Value: word})
		}
		*ctx.Scan = *kong.ScanFromTokens(tokens...)
	}
	return decode(ctx, target)
}

// mappers let decode read the values of all flags and arguments.
func (f *feed) mappers() (options []kong.Option) {
	for _, t := range []reflect.Type{reflect.TypeFor[time.Duration](), reflect.TypeFor[WaitTime](), reflect.TypeFor[Moment](), reflect.TypeFor[ForPID]()} {
		options = append(options, kong.TypeMapper(t, kong.MapperFunc(f.decode)))
	}
	for _, kind := range []reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Uint64, reflect.Slice, reflect.Map} {
		options = append(options, kong.KindMapper(kind, kong.MapperFunc(f.decode)))
	}
	return options
}

// kongs are kong's own mappers.
var kongs = sync.OnceValue(func() *kong.Registry {
	return kong.NewRegistry().RegisterDefaults().RegisterKind(reflect.String, kong.MapperFunc(decodeText)).
		RegisterType(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeTime))
})

// decodeText is the mapper of a text. It keeps bytes that aren't UTF-8: file names can have them, and kong's own mapper
// replaces them.
func decodeText(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("text")
	if err == nil {
		target.SetString(fmt.Sprint(token.Value))
	}
	return err
}

// decodeTime is the mapper of a duration.
func decodeTime(ctx *kong.DecodeContext, target reflect.Value) error {
	var word string
	if err := ctx.Scan.PopValueInto("duration", &word); err != nil {
		return err
	}
	d, err := duration(word)
	target.SetInt(int64(d))
	return err
}

// decode reads a value with kong's own mapper, and words the error if the value is wrong.
func decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token, kind := ctx.Scan.Peek(), target.Kind()
	value := fmt.Sprintf("%.80q", token)
	value = value[1 : len(value)-1]
	mistake := func(value, says string) error {
		if ctx.Value.Flag == nil {
			return fault.New(fault.Usage, "%s: %s", value, says)
		}
		return WrongFlag(ctx.Value.Name, value, "%s", says)
	}
	switch isText := kind == reflect.String || kind == reflect.Slice || kind == reflect.Map; {
	case ctx.Value.Flag == nil || kind == reflect.Bool || token.IsValue():
	case token.IsEOL():
		return mistake("", "its value is missing")
	case !isText && strings.IndexAny(value, "0123456789") == 1: // -5
		return mistake(value, "must not be negative")
	default:
		return mistake("", "its value is missing before "+value)
	}
	err := kongs().ForType(target.Type()).Decode(ctx, target)
	choices := ctx.Value.EnumSlice()
	isTime := target.Type() == reflect.TypeFor[time.Duration]()
	switch {
	case err == nil && (ctx.Value.Enum == "" || slices.Contains(choices, fmt.Sprint(target))):
		return nil
	case kind == reflect.Bool:
		return mistake(value, "takes no value")
	case value == "":
		return mistake("", "its value is empty")
	case err == nil:
		return mistake(value, "must be one of "+strings.TrimPrefix(strings.Join(choices, ", "), ", "))
	case kind == reflect.Map:
		return mistake(value, "must be KEY=VALUE")
	case kind == reflect.Int || kind == reflect.Uint64:
		return mistake(value, "must be a whole number")
	case (isTime || target.Type() == reflect.TypeFor[WaitTime]()) && strings.Trim(value, "0123456789.") == "":
		return mistake(value, fmt.Sprintf("has no unit: write %ss for seconds, %[1]sm for minutes", value))
	case isTime:
		return mistake(value, "must be a time such as 90s, 15m, 2h or 1d")
	default:
		return mistake(value, err.Error())
	}
}

// ambiguous refuses a flag with an empty value, unless it has the tag emptiable: --id "$ID" with an unset
// variable must not mean all locks, and --audit "$LOG" must not mean no log. It also refuses a second
// value of a flag with the tag once, because kong would ignore the first value.
func ambiguous(k *kong.Context) error {
	given := map[*kong.Value]bool{}
	for _, element := range k.Path {
		f := element.Flag
		switch {
		case f == nil || element.Resolved:
		case !given[f.Value] && !f.Tag.Has("emptiable") && blank(f.Target):
			return fault.New(fault.Usage, "--%s: its value is empty", f.Name)
		case f.Target.Kind() == reflect.Map && f.Target.MapIndex(reflect.ValueOf("")).IsValid():
			return fault.New(fault.Usage, "--%s: a key is empty", f.Name)
		case f.Name == "repo" && given[f.Value]:
			return fault.New(fault.Usage, "--repo is given twice: for the lock of a second repository, write --also repo:URL#NAME")
		case f.Tag.Has("once") && given[f.Value]:
			return fault.New(fault.Usage, "--%s is given twice", f.Name)
		default:
			given[f.Value] = true
		}
	}
	return nil
}

// blank reports whether a text, a list or a map is empty, or a list contains an empty text.
func blank(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			if blank(v.Index(i)) {
				return true
			}
		}
		return v.Len() == 0
	case reflect.String, reflect.Map:
		return v.Len() == 0
	default:
		return false
	}
}
