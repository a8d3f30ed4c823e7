package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
)

// command is a command of the command line. run returns the exit code, or an error that
// describe turns into one.
type command interface {
	run(*show.Reporter, global) (int, error)
}

// entry is a row of the table of commands.
type entry struct {
	name, help string
	command    command // its flags and arguments have no values yet
	tag        string
	// example and second are command lines for its help.
	example, second string
	detail          string // paragraphs of its help
}

// Tags of commands.
const (
	noconfig = `noconfig:""` // reads no configuration file
	hidden   = `hidden:"" ` + noconfig
)

// groups are all commands, in the order of the overview. Help leaves out the last group: programs run
// its commands, not people.
var groups = [...]struct {
	title    string
	commands []entry
}{
	{"Run a program under a lock", []entry{
		{"backup", "Run a backup under a shared lock.", wrapCmd{mode: replock.Shared, operation: "backup"}, "",
			"repolock -r s3://bucket/prefix backup -- restic backup /home",
			"repolock -r prod backup --if-held skip -- borg create ::'{now}' /home", ofEnvironment},
		{"restore", "Run a restore under a shared lock.", wrapCmd{mode: replock.Shared, operation: "restore"}, "",
			"repolock -r prod restore -- restic restore latest --target /tmp/back",
			"repolock -r /mnt/repo restore --wait 15m -- rclone copy b2:bucket /srv", ofEnvironment},
		{"prune", "Run a prune under the exclusive lock.", wrapCmd{mode: replock.Exclusive, operation: "prune"}, "",
			"repolock -r prod prune --wait 1h -- restic prune", "repolock -r prod prune --dry-run -- restic prune", ofEnvironment},
		{"run", "Run any other command under a lock, or without one.", runCmd{}, "",
			"repolock -r prod run --exclusive --operation check -- restic check", "repolock run --no-lock -- restic snapshots",
			ofEnvironment + " The locks of --also alone need neither --shared nor --exclusive."},
	}},
	{"Hold a lock in a script", []entry{
		{"acquire", "Acquire a lock for a script, and hold it in the background.", acquireCmd{}, "",
			`TOKEN=$(repolock -r prod acquire --shared --for-pid $$) || exit`,
			`LOCK=$(repolock acquire --shared --export --for-pid $$) && eval "$LOCK"`,
			`Prints a token, for check, renew and release, which also read it from REPOLOCK_TOKEN. A process in the background, the
keeper, holds and refreshes the lock until release, or until the process that called has ended. The script runs repolock
check before each step that needs the lock (docs/scripts.md).`},
		{"check", "Exit with 0 if the lock of acquire is held now.", tokenCmd{do: "check"}, noconfig,
			`repolock check "$token" || exit`, `REPOLOCK_TOKEN=$token repolock check`,
			`Looks into the repository, and so notices that the lock was broken. If the repository can't be reached, the lock is held as
long as its lease lasts, and a warning says so. Exits with 79 if the lock was lost, and prints why, or if its keeper is gone.`},
		{"renew", "Refresh the lock of acquire now.", tokenCmd{do: "renew"}, noconfig,
			`repolock renew "$token" && restic prune`, `REPOLOCK_TOKEN=$token repolock renew`,
			`The keeper refreshes its lock by itself. Renew before a step that takes nearly as long as the ttl and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`},
		{"release", "Release the lock of acquire.", tokenCmd{do: toRelease}, noconfig,
			`repolock release "$token"`, `REPOLOCK_TOKEN=$token repolock release`,
			`Exits with 79 if the lock was lost before, or if it is gone because it was released already or its keeper was killed: the
work under it might not have been protected. Exits with 69 if the lock couldn't be deleted and is left to expire.`},
	}},
	{"Look at locks, and break them", []entry{
		{"status", "Show every lock in the repository. Never writes.", statusCmd{}, "",
			"repolock -r prod status --watch", "repolock status --all --older-than 6h",
			`The table fits the terminal, or COLUMNS. In a pipe or a file without COLUMNS nothing is cut. If the table is too
wide, repolock cuts names, and then leaves out LAST SEEN, FOR and ID. --id of break-lock needs only the beginning of an id.`},
		{"history", "Show from an audit log who held which lock, and when.", historyCmd{}, noconfig,
			"repolock history /var/log/repolock.jsonl", "zcat log.gz | repolock history --svg night.svg -",
			`Prints the locks of an audit log: who held or waited for each and when, which were refused, and which were removed.
On a narrow terminal it leaves out MODE and WAITED, and cuts names; in a pipe it cuts nothing.`},
		{"break-lock", "Delete locks of any holder. For emergencies.", breakCmd{}, "",
			"repolock -r prod break-lock --dead", "repolock -r prod break-lock --id ID --yes",
			`Deletes the exclusive lock, every shared lock and every intent, of any age and holder. A holder that still
runs sees that at its next look, every 10s by default, and stops; until then it goes on. Break locks only when you are
certain that no operation is running.`},
	}},
	{"Try out a store", []entry{
		{"doctor", "Try out whether a store is fit for locks.", doctorCmd{}, "",
			"repolock doctor s3://bucket/prefix", "repolock -r prod --json doctor",
			`Tries out, with some 1,000 requests, what the store does and allows. Prints what repolock will do there and whether the
store is fit. Touches no lock: it writes below index/locks/doctor-TIME-ID/, the place of a lock of that name,
or with --name below index/locks/NAME/doctor-TIME-ID/, and deletes what it wrote. It can run at any time.

Exit codes: 0 the store is fit; 66 it doesn't exist; 69 it can't be reached; 74 scratch objects are left there; 77 permissions are lacking; 78 it is unfit.`},
		{"torture", "Let processes contend for a lock, and see whether it holds.", tortureCmd{}, "",
			"repolock torture /mnt/repo --duration 10m", `repolock torture --with 'flock /tmp/lock {}' --lease 1s`,
			`Lets processes contend for a lock of its own, kills and stops them, and checks that none of them ever wrote beside an
exclusive holder. Touches no other lock and no backup: it writes below index/locks/torture-TIME-ID/ and deletes what it
wrote. Each lock costs some 30 requests. See docs/evidence/torture.md.

With --with it tries any other lock, needs no repository, and writes only into the temporary directory.
No shell runs these commands; wrap a command that needs one in sh -c '... {}'.

Exit codes: 0 no violation was found; 70 it isn't known; 78 a violation was found; 66, 69, 77 no process got the lock.`},
	}},
	{"More", []entry{
		{"repos", "Show the repositories of the configuration file.", reposCmd{}, "",
			"repolock repos", "repolock --config /etc/repolock/config.toml repos",
			`repolock reads the first configuration file that exists: the file of --config or REPOLOCK_CONFIG,
repolock/config.toml in the user's settings, /etc/repolock/config.toml. docs/configuration.md describes it in full.`},
		{"completion", "Print a script that completes command lines in a shell.", completionCmd{}, noconfig,
			"source <(repolock completion bash)", "repolock completion fish | source",
			`The lines above are for bash and fish; in zsh, after compinit: source <(repolock completion zsh). After --, the shell completes the wrapped command.`},
		{"man", "Print the manual page, repolock(1).", manCmd{}, noconfig,
			"repolock man | man -l -", "repolock man >/usr/local/share/man/man1/repolock.1", ""},
		{"version", "Show the version.", versionCmd{}, noconfig,
			"repolock version", "repolock --json version", ""},
		{"help", "Show the help of a command, or on a topic.", helpCmd{}, noconfig,
			"repolock help prune", "repolock help urls", ""},
	}},
	{"", []entry{
		{name: "complete", command: completeCmd{}, tag: hidden},
		{name: "keeper", command: keeperCmd{}, tag: hidden},
		{name: "torture-child", command: tortureChildCmd{}, tag: hidden},
		{name: "torture-witness", command: tortureWitnessCmd{}, tag: hidden},
	}},
}

// commands returns all commands. The slice must not be changed.
var commands = sync.OnceValue(func() (all []entry) {
	for _, g := range groups {
		all = append(all, g.commands...)
	}
	return all
})

// ofEnvironment is the detail of the commands that run another one.
const ofEnvironment = `The command's environment has REPOLOCK_HELD=1, REPOLOCK_REPO if there is a repository, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE if there is one.`

// named returns the commands whose names are among the words. Such a word can be the value of a flag.
func named(words []string) (found []entry) {
	for _, c := range commands() {
		if slices.Contains(words, c.name) {
			found = append(found, c)
		}
	}
	return found
}

// called returns the first command that is named before --. Its name can be the value of a flag.
func called(args []string) (found entry, ok bool) {
	for _, word := range beforeDashes(args) {
		for _, c := range commands() {
			if c.name == word {
				return c, true
			}
		}
	}
	return entry{}, false
}

// parsed is a command line that parse has read.
type parsed struct {
	global
	settings settings
	selected *kong.Node // the command
	helped   bool       // help was asked for, and printed
}

// parse reads a command line. With an error it returns the flags that it has read before.
func parse(args []string, stdout, stderr io.Writer) (*parsed, error) {
	p := &parsed{}
	options := []kong.Option{kong.Writers(stdout, stderr), kong.Exit(func(int) { p.helped = true }), kong.Resolvers(&p.settings)}
	k, err := newParser(&p.global, args, options...).Parse(args)
	if err == nil && !p.helped {
		p.selected = k.Selected()
		err = ambiguous(k)
	}
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && k == nil {
		k = wrong.Context
	}
	p.file, p.Sources, p.Typed = p.settings.file, p.settings.sources, typed(k)
	if repo := p.settings.repo; repo != nil {
		p.Repo, p.unknown, p.listed = repo.url, repo.err, repo.name
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

// newParser returns a parser for these words. It knows the commands that the words name, and no others, because
// building them takes most of its time. If the words name none, it knows all, but not their flags.
func newParser(g *global, words []string, options ...kong.Option) *kong.Kong {
	options = slices.Concat(options, mappers(), []kong.Option{vars(beforeDashes(words)), kong.Help(printHelp)})
	known := named(beforeDashes(words))
	if known == nil {
		known = named(words)
	}
	flagless := known == nil
	if flagless {
		known = commands()
	}
	for _, c := range known {
		target := reflect.New(reflect.TypeFor[struct{}]())
		if !flagless {
			target = reflect.New(reflect.TypeOf(c.command))
			target.Elem().Set(reflect.ValueOf(c.command))
		}
		options = append(options, kong.DynamicCommand(c.name, c.help, "", target.Interface(), c.tag))
	}
	parser := kong.Must(g, options...)
	for i, c := range known {
		parser.Model.Children[i].Detail = c.detail
	}
	parser.Model.Name = "repolock"
	parser.Model.Help = "Run a backup, restore or prune while holding a lock that is kept in the backup repository itself."
	parser.Model.HelpFlag.Help = "Show the help of a command, and exit."
	return parser
}

// model describes all commands with their flags.
func model() *kong.Application { return newParser(&global{}, names()).Model }

func names() (all []string) {
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return all
}

// mappers let decode read the values of all flags and arguments.
func mappers() (options []kong.Option) {
	for _, t := range []reflect.Type{reflect.TypeFor[time.Duration](), reflect.TypeFor[waitTime](), reflect.TypeFor[moment](), reflect.TypeFor[forPID]()} {
		options = append(options, kong.TypeMapper(t, kong.MapperFunc(decode)))
	}
	for _, kind := range []reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Uint64, reflect.Slice, reflect.Map} {
		options = append(options, kong.KindMapper(kind, kong.MapperFunc(decode)))
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

// duration parses a duration as time.ParseDuration does, and days before its other parts: 1d, 1d12h.
func duration(word string) (time.Duration, error) {
	days, rest, found := strings.Cut(word, "d")
	if n, err := strconv.ParseFloat(strings.TrimLeft(days, "+-"), 64); found && err == nil {
		sign := days[:len(days)-len(strings.TrimLeft(days, "+-"))]
		word = sign + strconv.FormatFloat(24*n, 'f', -1, 64) + "h" + rest
	}
	return time.ParseDuration(word)
}

// decode reads a value with kong's own mapper, and words the error if the value is wrong.
func decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token, kind := ctx.Scan.Peek(), target.Kind()
	value := fmt.Sprintf("%.80q", token)
	value = value[1 : len(value)-1]
	mistake := func(of, words string) error {
		if ctx.Value.Flag != nil {
			of = strings.TrimSpace("--" + ctx.Value.Name + " " + of)
		}
		return fault.New(fault.Usage, "%s: %s", of, words)
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
	case (isTime || target.Type() == reflect.TypeFor[waitTime]()) && strings.Trim(value, "0123456789.") == "":
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
		case !f.Tag.Has("emptiable") && blank(f.Target):
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
