package main

import (
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

// command is a command of the command line. run returns the exit code, or an error that
// describe has an exit code for.
type command interface {
	run(*reporter, global) (int, error)
}

// entry is a command in the table of all commands.
type entry struct {
	name, help string
	command    command
	tag        string
	// example and second are command lines for its help.
	example, second string
}

// Tags of commands.
const (
	noconfig = `noconfig:""` // reads no configuration file
	hidden   = `hidden:"" ` + noconfig
)

// groups are all commands, in the order of the overview. The last group has no help.
var groups = [...]struct {
	title    string
	commands []entry
}{
	{"Run a program under a lock", []entry{
		{"backup", "Run a backup under a shared lock.", backupCmd{}, "",
			"repolock -r s3://bucket/prefix backup -- restic backup /home",
			"repolock -r prod backup --if-held skip -- borg create ::'{now}' /home"},
		{"restore", "Run a restore under a shared lock.", restoreCmd{}, "",
			"repolock -r prod restore -- restic restore latest --target /tmp/back",
			"repolock -r /mnt/repo restore --wait 15m -- rclone copy b2:bucket /srv"},
		{"prune", "Run a prune under the exclusive lock.", pruneCmd{}, "",
			"repolock -r prod prune --wait 1h -- restic prune", "repolock -r prod prune --dry-run -- restic prune"},
		{"run", "Run any other command under a lock, or without one.", runCmd{}, "",
			"repolock -r prod run --exclusive --operation check -- restic check", "repolock run --no-lock -- restic snapshots"},
	}},
	{"Hold a lock in a script", []entry{
		{"acquire", "Acquire a lock for a script, and hold it in the background.", acquireCmd{}, "",
			`TOKEN=$(repolock -r prod acquire --shared --for-pid $$) || exit`,
			`LOCK=$(repolock acquire --shared --export --for-pid $$) && eval "$LOCK"`},
		{"check", "Exit with 0 if the lock of acquire is held now.", checkCmd{}, noconfig,
			`repolock check "$token" || exit`, `REPOLOCK_TOKEN=$token repolock check`},
		{"renew", "Refresh the lock of acquire now.", renewCmd{}, noconfig,
			`repolock renew "$token" && restic prune`, `REPOLOCK_TOKEN=$token repolock renew`},
		{"release", "Release the lock of acquire.", releaseCmd{}, noconfig,
			`repolock release "$token"`, `REPOLOCK_TOKEN=$token repolock release`},
	}},
	{"Look at locks, and break them", []entry{
		{"status", "Show every lock in the repository. Never writes.", statusCmd{}, "",
			"repolock -r prod status --watch", "repolock -r prod --json status"},
		{"history", "Show from an audit log who held which lock, and when.", historyCmd{}, noconfig,
			"repolock history /var/log/repolock.jsonl", "zcat log.gz | repolock history --svg night.svg -"},
		{"break-lock", "Delete locks of any holder. For emergencies.", breakCmd{}, "",
			"repolock -r prod break-lock --dead", "repolock -r prod break-lock --id ID --yes"},
	}},
	{"Try out a store", []entry{
		{"doctor", "Try out whether a store is fit for locks.", doctorCmd{}, "",
			"repolock doctor s3://bucket/prefix", "repolock -r prod --json doctor"},
		{"torture", "Let processes contend for a lock, and see whether it holds.", tortureCmd{}, "",
			"repolock torture /mnt/repo --duration 10m", `repolock torture --with 'flock /tmp/lock {}' --lease 1s`},
	}},
	{"More", []entry{
		{"repos", "Show the repositories of the configuration file.", reposCmd{}, "",
			"repolock repos", "repolock --config /etc/repolock/config.toml repos"},
		{"completion", "Print a script that completes command lines in a shell.", completionCmd{}, noconfig,
			"source <(repolock completion bash)", "repolock completion fish | source"},
		{"man", "Print the manual page, repolock(1).", manCmd{}, noconfig,
			"repolock man | man -l -", "repolock man >/usr/local/share/man/man1/repolock.1"},
		{"version", "Show the version.", versionCmd{}, noconfig,
			"repolock version", "repolock --json version"},
		{"help", "Show the help of a command, or on a topic.", helpCmd{}, noconfig,
			"repolock help prune", "repolock help urls"},
	}},
	{"", []entry{
		{name: "complete", command: completeCmd{}, tag: hidden},
		{name: "keeper", command: keeperCmd{}, tag: hidden},
		{name: "torture-child", command: tortureChildCmd{}, tag: hidden},
		{name: "torture-witness", command: tortureWitnessCmd{}, tag: hidden},
	}},
}

func commands() (all []entry) {
	for _, g := range groups {
		all = append(all, g.commands...)
	}
	return all
}

// called returns the command that the arguments might call: the first word that is the name of one.
func called(args []string) (found entry, ok bool) {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	all := commands()
	for _, word := range args {
		if i := slices.IndexFunc(all, func(c entry) bool { return c.name == word }); i >= 0 {
			return all[i], true
		}
	}
	return entry{}, false
}

// parsed is a command line.
type parsed struct {
	global
	settings settings
	selected *kong.Node // the command
	helped   bool       // help was asked for, and printed
}

// parse reads a command line. It returns a value even with an error.
func parse(args []string, stdout, stderr io.Writer) (*parsed, error) {
	p := &parsed{}
	options := []kong.Option{kong.Writers(stdout, stderr), kong.Exit(func(int) { p.helped = true }), kong.Resolvers(&p.settings)}
	k, err := newParser(&p.global, args, options...).Parse(args)
	if err == nil && !p.helped {
		p.selected = k.Selected()
		err = doubtful(k)
	}
	p.file, p.Sources = p.settings.file, p.settings.sources
	if repo := p.settings.repo; repo != nil {
		p.Repo, p.unknown, p.listed = repo.url, repo.err, repo.name
	}
	return p, err
}

// newParser returns a parser of command lines of these words. Most of the time that a parser takes is for
// the description of the commands' flags. A command can't be called by a line without its name, so that it
// is described by its name and its help alone.
func newParser(g *global, words []string, options ...kong.Option) *kong.Kong {
	options = slices.Concat(options, mappers(), []kong.Option{vars(), kong.Help(printHelp)})
	for _, c := range commands() {
		target := any(&struct{}{})
		if slices.Contains(words, c.name) {
			target = reflect.New(reflect.TypeOf(c.command)).Interface()
		}
		options = append(options, kong.DynamicCommand(c.name, c.help, "", target, c.tag))
	}
	parser := kong.Must(g, options...)
	parser.Model.Name = "repolock"
	parser.Model.Help = "Run a backup, restore or prune while holding a lock that is kept in the backup repository itself."
	parser.Model.HelpFlag.Help = "Show the help of a command, and exit."
	return parser
}

// model describes all commands with their flags.
func model() *kong.Application { return newParser(&global{}, names()).Model }

// names are the names of all commands.
func names() (all []string) {
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return all
}

// mappers make decode the mapper of all values.
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
var kongs = sync.OnceValue(func() *kong.Registry { return kong.NewRegistry().RegisterDefaults() })

// decode reads a value as kong does, and words a mistake in it.
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
		return mistake(value, "must be a time such as 90s, 15m or 2h")
	default:
		return mistake(value, err.Error())
	}
}

// doubtful returns an error for a flag of the command line whose value is empty, unless it has the tag
// emptiable: --id "$ID" with an unset variable must not mean all locks, nor --audit "$LOG" no log. It also
// returns one for a flag with the tag once that is there twice: the last one alone would count.
func doubtful(k *kong.Context) error {
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
			return fault.New(fault.Usage, "--repo is given twice; the lock of a second repository is --also repo:URL#NAME")
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
