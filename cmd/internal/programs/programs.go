// Package programs knows the backup programs: which lock each of their commands needs, and where its repository is.
// It turns a command line into a Line. It runs nothing, and reads only what its caller passes to it.
package programs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
)

// None is the mode of a command that needs no lock, because it only reads, or works on no repository.
const None replock.Mode = 0

// Program is a backup program, as data.
type Program struct {
	Name     string   // and the base name of its executable
	Others   []string // other base names
	Page     string   // of the documentation, in docs/
	Lock     string   // the name of its lock, or "" for the repository's own
	Commands []Command

	flags  string // of all commands: see flagSet
	rules  []Rule // of all commands, after each one's own
	syntax syntax
	// variables is the beginning of the names of variables that set flags, or "" if there are none.
	variables string
	alias     map[string]string // words that mean another word in a command's name
	locate    func(*Line, System) (Place, error)
	named     []string // variables that name the repository
}

// Command is a row of a program's table.
type Command struct {
	Words string       // its name: "backup", or "snapshot create"
	Mode  replock.Mode // of the lock that it needs
	// Least is set if a person can know that a weaker mode is enough: it is the weakest. Otherwise Mode is the weakest.
	Least replock.Mode
	Rules []Rule
	// Refused is why repolock doesn't run the command by itself. "" means that it does.
	Refused string

	flags string // that differ from the program's
	runs  bool   // its first argument ends its flags, because another program's words can follow
}

// Rule changes the row of a command that has a flag, or lacks it. It weakens the mode, unless Raise is set.
type Rule struct {
	Flag    string // its long name
	Missing bool   // the rule is for a command without the flag
	Off     bool   // the rule is for a command whose flag is switched off, as by --no-x
	Alone   bool   // the rule is for a command without arguments
	Unless  string // flags of which none is on the line, with spaces between them
	Mode    replock.Mode
	Refused string // in place of Mode
	Raise   bool   // the command needs at least Mode, even if a person chooses a weaker one
	// Directory is set if the rule is for a first argument that is a directory of this machine: see Line.Look.
	Directory bool
}

// holds reports whether the rule is for these words.
func (r Rule) holds(w parsed) bool {
	mentioned := func(flag string) bool { return len(w.all(flag)) > 0 }
	switch {
	case r.Alone && len(w.positional) > 0, slices.ContainsFunc(strings.Fields(r.Unless), mentioned):
		return false
	case r.Off:
		return w.off(r.Flag)
	case r.Raise:
		return mentioned(r.Flag) && !w.off(r.Flag)
	default:
		return w.has(r.Flag) != r.Missing
	}
}

// typed returns the flag of the rule as it is written on a line.
func (r Rule) typed() string {
	if r.Off {
		return "--no-" + r.Flag
	}
	return "--" + r.Flag
}

// Line is a command line of a program that the table knows.
type Line struct {
	Program   *Program
	Command   *Command
	Mode      replock.Mode // of the lock that it needs
	Least     replock.Mode // the weakest mode that a person can choose
	Operation string       // the name of its lock's operation: the program's command

	args     []string // the whole line
	at       int      // index of the program in args
	words    parsed
	environ  environ
	own      environ // repolock's
	cut      string  // the wrapper that gives the program another environment, or ""
	home     string  // the wrapper that gives the program another user's home directory, or ""
	login    string  // the wrapper that starts the program in that directory, or ""
	relative bool    // a path was read that begins in the directory of login
	restores bool    // rclone copies from a remote into a directory
	// onlyDirectory is set if Mode is right only if the first argument is a directory of this machine.
	onlyDirectory bool
	by            string // the variable or argument that names the repository: see Place.By
	dir           string // in which the program runs, or "" for this process' own
}

// Read reads a command line: wrappers, such as env and nice, and then a program of the table. It refuses a program, a
// command or a flag that isn't in the table, because it must not guess. The Line of a refused line has the fields that
// are known all the same.
func Read(args, env []string) (*Line, error) {
	l := &Line{args: args, environ: newEnviron(env), own: newEnviron(env)}
	rest, err := l.unwrap(args)
	if err != nil {
		return l, err
	}
	name := base(rest[0])
	p := Find(name)
	if p == nil {
		return l, unknownProgram(rest[0])
	}
	l.Program, l.at = p, len(args)-len(rest)
	l.words = p.parse(rest[1:])
	l.Command = l.words.command
	if c := l.Command; c != nil {
		l.Operation, l.Mode, l.Least = c.Words, c.Mode, c.Mode
		if c.Least != 0 {
			l.Least = c.Least
		}
	}
	l.readVariables()
	return l, l.judge()
}

// judge applies the rules of the command, and refuses what isn't known.
func (l *Line) judge() error {
	w := l.words
	if l.Command == nil && w.unknown == "" && (w.has("help") || w.has("version")) {
		l.Command, l.Operation = &Command{Words: "help"}, "help"
		return nil
	}
	if l.Command == nil {
		return l.unknownCommand()
	}
	if l.words.has("help") && w.unknown == "" {
		l.Mode, l.Least = None, None
		return nil
	}
	l.restores = l.Program == rclone && l.fromRemote()
	refused := l.settle()
	switch {
	case refused != "":
		return fault.Advise(fault.New(fault.Usage, "%s: %s", l.title(), refused), l.inWords())
	case w.unknown != "": // a flag can make even a list delete, as rustic's snapshots --interactive
		return fault.Advise(fault.New(fault.Usage, "repolock doesn't know the flag %.80s of %s, or the flag lacks its value, so it doesn't know what the line does", w.unknown, l.Program.Name), l.inWords())
	default:
		return nil
	}
}

// settle sets the mode by the rules. It returns why the line is refused, if a rule says so.
func (l *Line) settle() (refused string) {
	w := l.words
	l.Mode, refused = l.Command.Mode, l.Command.Refused
	if l.restores {
		l.Mode = shared
	}
	for _, r := range l.rules() {
		switch {
		case !r.holds(w):
		case r.Refused != "":
			refused = r.Refused
		case r.Raise:
			l.Mode = max(l.Mode, r.Mode)
			l.Least = max(l.Least, r.Mode)
		case w.unknown == "": // else the flag could be the value of the flag that we don't know
			l.onlyDirectory = r.Directory && (l.onlyDirectory || l.Mode > r.Mode)
			l.Mode = min(l.Mode, r.Mode)
			l.Least = min(l.Least, r.Mode)
		}
	}
	return refused
}

// rules returns the rules of the command and of its program.
func (l *Line) rules() []Rule { return slices.Concat(l.Command.Rules, l.Program.rules) }

// readVariables adds the flags that variables set, if a flag can make the mode stronger. In doubt, a variable weakens no
// mode.
func (l *Line) readVariables() {
	if l.Command == nil || l.Program.variables == "" {
		return
	}
	for _, r := range l.rules() {
		flags := strings.Fields(r.Unless)
		if r.Raise {
			flags = append(flags, r.Flag)
		}
		for _, flag := range flags {
			variable := l.Program.variables + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
			if value := l.getenv(variable); value != "" && len(l.words.all(flag)) == 0 {
				l.words.flags = append(l.words.flags, usedFlag{flag, value})
			}
		}
	}
}

// title names the command for people.
func (l *Line) title() string { return l.Program.Name + " " + l.Command.Words }

// inWords returns the hint for a line that a person must name the lock for. The arguments can contain a password.
func (l *Line) inWords() string {
	words := l.Program.Name
	if l.Command != nil {
		words = l.title()
	}
	switch {
	case l.Command != nil && l.Mode == None && l.Command.Refused == "":
		return fmt.Sprintf("if the line needs no lock, leave repolock out; else %s", eitherWords(words))
	case l.Command != nil && l.Command.Refused == twoRepositories:
		return fmt.Sprintf("name both locks: repolock -r SOURCE restore -- repolock -r DESTINATION run --%s -- %s …", l.Mode, words)
	case l.Command != nil && l.Least == replock.Exclusive:
		return fmt.Sprintf("name the lock: {repolock run} --exclusive -- %s …", words)
	case l.Command != nil && l.Least == replock.Shared && l.Mode == replock.Shared:
		return fmt.Sprintf("name the lock: {repolock run} --shared -- %s …", words)
	default:
		return eitherWords(words)
	}
}

func eitherWords(words string) string {
	return fmt.Sprintf("name the lock: {repolock run} --exclusive -- %s …, or {repolock run} --shared if it only reads and adds data", words)
}

// Weak returns an error if a mode is too weak for a command line that the table knows. It returns nil for any other
// command line, because only the person knows which mode that needs.
func Weak(args, env []string, mode replock.Mode, by string) error {
	l, _ := Read(args, env)
	if l.Command == nil || mode == None || l.Least <= mode {
		return nil
	}
	hint := fmt.Sprintf("write {repolock -- %s …}, or {repolock run} --%s -- %[1]s …", l.title(), l.Mode)
	for _, r := range l.Command.Rules {
		if r.Refused == "" && !r.Raise && !r.Missing && r.Mode == mode && !r.holds(l.words) {
			hint += fmt.Sprintf(", or add %s: with it a %s lock is enough", r.typed(), mode)
			break
		}
	}
	return fault.Advise(fault.New(fault.Usage, "%s needs the %s lock, and repolock %s takes a %s one", l.title(), l.Least, by, mode), hint)
}

// Look adapts the mode of a line whose mode is right only if its first argument is a directory of this machine.
func (l *Line) Look(s System) {
	if !l.onlyDirectory {
		return
	}
	if words := l.words.positional; len(words) == 0 || isRemote(words[0]) || s.IsDir == nil || !s.IsDir(l.join(words[0])) {
		l.Mode = l.Command.Mode
	}
}

// Find returns the program of a base name, or nil.
func Find(name string) *Program {
	for _, p := range All {
		if p.Name == name || slices.Contains(p.Others, name) {
			return p
		}
	}
	return nil
}

// Named returns a program whose repository a variable of env names, and that variable, or nil.
func Named(env []string) (*Program, string) {
	set := newEnviron(env)
	for _, p := range All {
		for _, variable := range p.named {
			if set[variable] != "" {
				return p, variable
			}
		}
	}
	return nil, ""
}

// base returns the name of an executable without its directory and without .exe.
func base(word string) string {
	word = strings.ReplaceAll(word, `\`, "/")
	return strings.TrimSuffix(path.Base(word), ".exe")
}

// Unlock returns the command line that removes the stale locks of the program itself, to be run before the line, or
// nil if the program has no such command or the line needs none.
func (l *Line) Unlock() []string {
	if l.Program != restic || l.Mode != replock.Exclusive || l.Command.Words == "unlock" || !l.hasPassword() {
		return nil
	}
	line := slices.Clone(l.args[:l.at+1])
	for _, f := range l.words.flags {
		if slices.Contains(ofUnlock, f.name) {
			line = append(line, "--"+f.name+"="+f.value)
		}
	}
	return append(line, "unlock", "--quiet")
}

// hasPassword reports whether restic finds its password without a question: unlock must not ask, nor read stdin.
func (l *Line) hasPassword() bool {
	for _, flag := range []string{"password-file", "password-command", "insecure-no-password"} {
		if l.words.has(flag) {
			return true
		}
	}
	for _, v := range []string{"RESTIC_PASSWORD", "RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND"} {
		if l.getenv(v) != "" {
			return true
		}
	}
	return false
}

// ofUnlock are the flags of restic that its unlock gets, too: the flags that name the repository and open it.
var ofUnlock = []string{
	"repo", "repository-file", "password-file", "password-command", "key-hint", "option", "cacert", "tls-client-cert",
	"insecure-tls", "insecure-no-password", "cache-dir", "no-cache", "http-user-agent", "limit-download", "limit-upload",
}

// Modes returns the commands of a program in the order of their modes, exclusive first, for help and pages. A refused
// command isn't among them.
func (p *Program) Modes() (exclusive, shared, none []string) {
	for _, c := range p.Commands {
		switch {
		case c.Refused != "":
		case c.Mode == replock.Exclusive:
			exclusive = append(exclusive, c.Words)
		case c.Mode == replock.Shared:
			shared = append(shared, c.Words)
		default:
			none = append(none, c.Words)
		}
	}
	return exclusive, shared, none
}
