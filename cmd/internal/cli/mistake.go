package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/programs"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
)

// Mistaken rewords the parser's error about a command line.
func (r *Reader) Mistaken(err error, args []string) error {
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours
	}
	parsing, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return fault.As(fault.Usage, err)
	}
	if parsing.Context.Error != nil {
		return r.unexpected(parsing.Context, args)
	}
	node := parsing.Context.Selected()
	if node == nil {
		return fault.Advise(fault.New(fault.Usage, "no command is given"), r.swallowed(args))
	}
	for _, p := range node.Positional {
		switch {
		case !p.Required || p.Set:
		case p.Passthrough:
			return ErrNoCommand
		case node.Name == "history":
			return fault.Advise(fault.New(fault.Usage, "no file is given"), "history reads a file of --audit, and no repository: repolock history FILE")
		default:
			return fault.New(fault.Usage, "no %s is given", p.Name)
		}
	}
	return fault.As(fault.Usage, err) // two flags that exclude each other
}

// FlagError is a wrong value of a flag, or of its key in the configuration file.
type FlagError struct {
	Flag  string // its name, without --
	Value string // as it is printed; "" if the value isn't
	Says  string // what is wrong with it
}

// WrongFlag returns a FlagError of the class Usage. FlagError.Says is the formatted text.
func WrongFlag(flag, value, format string, args ...any) error {
	return fault.As(fault.Usage, &FlagError{flag, value, fmt.Sprintf(format, args...)})
}

// Error is the text for the command line.
func (e *FlagError) Error() string { return "--" + e.inFile() }

// inFile is the text for the configuration file, in which the flag is a key.
func (e *FlagError) inFile() string { return strings.TrimSpace(e.Flag+" "+e.Value) + ": " + e.Says }

// ErrNoCommand is the error of a command line that has no command to run.
var ErrNoCommand = fault.New(fault.Usage, "no command to run: write it after --")

// unexpected returns the error of the word at which the parser stopped: a flag or an argument that doesn't
// exist. decode returns the errors of values.
func (r *Reader) unexpected(ctx *kong.Context, args []string) error {
	short := func(word string) string { return fmt.Sprintf("-%c", []rune(word)[0]) }
	rest := ctx.Path[len(ctx.Path)-1].Remainder()
	at := len(ctx.Args) - len(rest)
	if args[at] == "--" && len(rest) > 1 {
		at++
	}
	word, selected := args[at], ctx.Selected()
	after := slices.Contains(args[:at], "--")
	if selected == nil && !after {
		before := BeforeDashes(args)
		if i, unknown := r.argument(before); i < len(before) && !unknown && !slices.Contains(r.Names(), before[i]) {
			return r.notACommand(args, i)
		}
		if err := r.early(args, at); err != nil {
			return err
		}
	}
	switch {
	case word != rest[0] && !after && len(word) > len("-xy") && r.similar("backup", "-"+word) != "": // -help
		return r.NotAFlag(args, word, word)
	case word != rest[0] && !after: // a letter of -xyz
		return r.NotAFlag(args, short(rest[0]), short(rest[0]))
	case strings.HasPrefix(word, "--") && !after:
		flag, _, _ := strings.Cut(word, "=")
		return r.NotAFlag(args, flag, word)
	case strings.HasPrefix(word, "-") && word != "-" && !after:
		return r.NotAFlag(args, short(word[1:]), word)
	case selected == nil && after:
		return noCommand(word, args[at+1:])
	case selected == nil:
		return r.notACommand(args, at)
	}
	hint, sure := r.unquoted(args, at, selected)
	if !sure {
		hint = cmp.Or(notArgument(selected.Name, word, args), hint)
	}
	return fault.Advise(fault.New(fault.Usage, "unexpected argument %s", harmless(word)), hint)
}

// early returns the error of a flag that belongs to a command and comes before it, or nil.
func (r *Reader) early(args []string, at int) error {
	command := "backup"
	if c, ok := r.Called(args[at:]); ok && !c.IsHidden() {
		command = c.Name
	}
	name, value, valued := strings.Cut(args[at], "=")
	for _, f := range Visible(NodeOf(r.Model(), command).Flags) {
		if name != "--"+f.Name && (f.Short == 0 || name != "-"+string(f.Short)) {
			continue
		}
		example := name
		if !valued && !f.IsBool() && at+1 < len(args) {
			value, valued = args[at+1], args[at+1] != command && args[at+1] != "--"
		}
		if valued && !f.IsBool() {
			example += " " + text.Word(harmless(value))
		}
		return fault.New(fault.Usage, "%s comes after the command: repolock %s %.80s", name, command, example)
	}
	return nil
}

// notACommand returns the error of a first word that is no command of repolock. Often it is the program that
// the user wants to run, or another tool's name for a command.
func (r *Reader) notACommand(args []string, at int) error {
	word, rest := args[at], args[at+1:]
	quotes, sure := r.unquoted(args, at, nil)
	hint, ours, like := "see repolock help", meant(elsewhere, word), strings.Join(r.Meant(word), ", ")
	undone, program := slices.Contains(rest, "--"), programs.Near(word)
	switch isBackup := slices.Contains(wrapped[:], filepath.Base(word)); {
	case sure:
		hint = quotes
	case programs.OtherDash(word) != "":
		hint = programs.OtherDash(word)
	case isBackup || ours == "" && like == "" && runs(word):
		hint, undone = underLock(word, rest), true
	case ours != "":
		hint = "did you mean " + ours + "?"
	case namesRepository(word):
		hint = byFlag(word)
	case like != "":
		hint = strings.TrimSuffix("did you mean "+like+"? "+quotes, " ")
	case quotes != "":
		hint = quotes
	case program != "":
		hint, undone = "did you mean "+program+"? "+underLock(program, rest), true
	}
	err := fault.Advise(fault.New(fault.Usage, "%.80q isn't a command of repolock", harmless(word)), hint)
	if undone {
		return notRun(err)
	}
	return err
}

// unquoted returns a hint if a word can be the rest of a path or URL that has a blank, and that the line doesn't quote,
// or "". It is sure if such a path exists. command is nil if none is known.
func (r *Reader) unquoted(args []string, at int, command *kong.Node) (hint string, sure bool) {
	if at == 0 {
		return "", false
	}
	before := args[at-1]
	app := r.Model()
	flags := slices.Clone(app.Flags)
	for _, c := range app.Children {
		flags = append(flags, c.Flags...)
	}
	for _, f := range flags {
		if f.Tag.Get("predictor") == "" {
			continue
		}
		long, short := "--"+f.Name, "-"+string(f.Short)
		value, written := strings.CutPrefix(before, long+"=")
		switch {
		case written:
			return rejoined(long+" ", value, args[at:])
		case at > 1 && (args[at-2] == long || f.Short != 0 && args[at-2] == short):
			return rejoined(args[at-2]+" ", before, args[at:])
		case f.Short != 0 && len(before) > len(short) && strings.HasPrefix(before, short):
			return rejoined(short+" ", before[len(short):], args[at:])
		}
	}
	if command != nil && slices.Contains([]string{"doctor", "torture", "history"}, command.Name) && !strings.HasPrefix(before, "-") {
		return rejoined("", before, args[at:])
	}
	return "", false
}

// rejoined returns the hint for a path or URL that the words after it can belong to. flag comes before it in the hint.
func rejoined(flag, value string, words []string) (hint string, sure bool) {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	quoted := func(path string) string { return "a value with a blank needs quotes: " + flag + text.Word(path) }
	path := value
	for _, word := range words[:min(len(words), 9)] {
		if strings.HasPrefix(word, "-") {
			break
		}
		if path += " " + word; exists(path) {
			return quoted(path), true
		}
	}
	switch {
	case strings.Contains(value, "://"), isName(value), exists(value):
		return "", false
	default:
		return quoted(value + " " + words[0]), false
	}
}

// Meant returns the commands that a word resembles.
func (r *Reader) Meant(word string) (all []string) {
	for _, c := range r.Commands() {
		if !c.IsHidden() && text.Resembles(word, c.Name) {
			all = append(all, c.Name)
		}
	}
	return all
}

// notArgument returns the hint for an argument that a command doesn't take, or "".
func notArgument(command, word string, args []string) string {
	switch {
	case programs.OtherDash(word) != "":
		return programs.OtherDash(word)
	case command == "break-lock" && len(word) >= LeastID && strings.Trim(word, "0123456789abcdef") == "":
		return "write an id after its flag: --id " + word
	case command == "acquire" && slices.Contains(args, "--"):
		return "acquire runs no command: write {repolock run} --shared -- COMMAND"
	case command != "doctor" && command != "torture" && namesRepository(word): // their argument is a repository
		return byFlag(word)
	case command == "status", command == "break-lock":
		return programs.Alone(command, []string{word})
	default:
		return ""
	}
}

// LeastID is the smallest length of an abbreviated id.
const LeastID = 4

// noCommand returns the error of a line that has a program after --, and no command of repolock before it.
func noCommand(word string, rest []string) error {
	err := fault.New(fault.Usage, "no command of repolock comes before --")
	if word == "" {
		return err
	}
	return notRun(fault.Advise(err, underLock(word, rest)))
}

// notRun adds to an error that the program of the command line was not run.
func notRun(err error) error {
	return fault.With(err, func(e *fault.Error) { e.Undone = "nothing was run" })
}

// underLock returns a hint on how to run a program under a lock.
func underLock(word string, rest []string) string {
	subcommand := ""
	isFlag := func(w string) bool { return strings.HasPrefix(w, "-") }
	if words := slices.DeleteFunc(slices.Clone(rest), isFlag); len(words) > 0 && slices.Contains(wrapped[:], filepath.Base(word)) {
		subcommand = words[0]
	}
	operation := cmp.Or(meant(operations, subcommand), "backup")
	program := strings.TrimSpace(text.Word(word) + " " + subcommand)
	hint := fmt.Sprintf("to run it under a lock: {repolock %s} -- %.80s", operation, program)
	if programs.Find(filepath.Base(word)) != nil {
		hint = fmt.Sprintf("to run it under its lock: {repolock -- %.80s}", program)
	}
	if len(rest) > 1 || len(rest) > 0 && subcommand == "" {
		hint += " …" // the arguments can contain a password
	}
	return hint
}

func runs(word string) bool {
	_, err := exec.LookPath(word)
	return err == nil
}

// wrapped are the programs that most users run under a lock. They needn't be installed here.
var wrapped = [...]string{"restic", "borg", "kopia", "rclone", "cloudstic", "rustic", "duplicacy", "rsync"}

// meaning is our name for words of other programs.
type meaning struct {
	ours  string
	words []string
}

// meant returns our name for a word, or "".
func meant(table []meaning, word string) string {
	for _, m := range table {
		if slices.Contains(m.words, word) {
			return m.ours
		}
	}
	return ""
}

// operations are commands of the wrapped programs. All their other commands run under backup.
var operations = []meaning{
	{"restore", []string{"restore", "extract", "mount", "dump"}},
	{"prune", []string{"prune", "forget", "compact", "delete", "gc", "maintenance", "rebuild-index", "repair", "recover"}},
}

// elsewhere are other tools' names for commands of repolock.
var elsewhere = []meaning{
	{"release (of a script's own lock) or break-lock (of any holder's)", []string{"unlock"}},
	{"break-lock", []string{"break", "rm", "delete", "remove"}},
	{"run, or acquire in a script", []string{"lock"}},
	{"run", []string{"exec"}},
	{"run --shared", []string{"shared"}},
	{"run --exclusive", []string{"exclusive"}},
	{"status", []string{"list", "ls", "locks", "list-locks", "show", "who", "info"}},
	{"status --watch", []string{"watch", "top"}},
	{"prune", []string{"forget", "gc", "compact", "cleanup"}},
	{"doctor", []string{"test", "check-store", "init"}},
	{"history", []string{"log", "logs", "audit"}},
	{"repos", []string{"config"}},
	{"renew", []string{"refresh", "keepalive"}},
}

// flagsElsewhere are other tools' names for flags.
var flagsElsewhere = []meaning{
	{"--wait", []string{"retry-lock", "lock-wait", "lock-timeout", "timeout"}}, // restic, borg, others
	{"--repo", []string{"repository", "repo-url", "url"}},
	{"--held-exit-code", []string{"conflict-exit-code"}}, // flock
}

// NotAFlag returns the error of a flag that the called command doesn't have. For -wait the flag is -w, and the
// word is -wait.
func (r *Reader) NotAFlag(args []string, flag, word string) error {
	command := "backup" // it has the flags that most commands have
	if c, ok := r.Called(args); ok && c.Tag != Unnamed {
		command = c.Name
	}
	ours := ""
	named, _ := r.Called(args)
	switch {
	case named.Tag == Unnamed && (flag == "--shared" || flag == "--exclusive" || flag == "--no-lock"):
		return fault.New(fault.Usage, "%s: repolock takes the lock that the command needs: leave out %[1]s, or write repolock run %[1]s", flag)
	case flag == "--exclusive" && command == "prune", flag == "--shared" && (command == "backup" || command == "restore"):
		return fault.New(fault.Usage, "%s: %s is %[3]s already: leave out %[1]s", flag, command, flag[2:])
	case flag == "--exclusive" && (command == "backup" || command == "restore"):
		return fault.New(fault.Usage, "--exclusive: %s takes a shared lock: write repolock run --exclusive --operation %[1]s", command)
	case flag == "--shared" && command == "prune":
		return fault.New(fault.Usage, "--shared: prune needs the exclusive lock: for a command that deletes nothing write repolock run --shared")
	case len(flag) > len("-x") && flag[1] != '-': // -help
		ours = r.similar(command, "-"+flag)
	case strings.HasPrefix(flag, "--"):
		ours = r.similar(command, flag)
	case len(word) > len("-x"):
		ours = r.similar(command, "-"+word)
	}
	if ours == "" {
		return fault.New(fault.Usage, "unknown flag %.80s", flag)
	}
	return fault.New(fault.Usage, "unknown flag %.80s: did you mean %s?", flag, ours)
}

// similar returns the flag of a command that was probably meant by a word, or "". For --no-x it never returns --x.
func (r *Reader) similar(command, word string) string {
	word, _, _ = strings.Cut(word, "=")
	name := strings.TrimPrefix(word, "--")
	if ours := meant(flagsElsewhere, name); ours != "" {
		return ours
	}
	best, at := "", 3
	app := r.Model()
	for _, f := range Visible(append(slices.Clone(NodeOf(app, command).Flags), app.Flags...)) {
		switch d := text.Distance(name, f.Name); {
		case strings.HasPrefix(name, "no") && !strings.HasPrefix(f.Name, "no"):
		case name != "" && strings.HasPrefix(f.Name, name):
			return "--" + f.Name
		case d < at && 2*d <= len(name):
			best, at = "--"+f.Name, d
		}
	}
	return best
}

// swallowed returns a hint if a flag has taken the name of the command as its value, or else "".
func (r *Reader) swallowed(args []string) string {
	for i, word := range BeforeDashes(args) {
		if i == 0 || !strings.HasPrefix(args[i-1], "-") {
			continue
		}
		if _, ok := r.Called(args[i : i+1]); ok {
			return fmt.Sprintf("%s took %q as its value", args[i-1], word)
		}
	}
	return ""
}

// Misnamed returns the probable mistake in a path that doesn't exist, or "".
func Misnamed(path string) string {
	colonless := lazyregexp.New(`^(?i)(s3|minio|b2|sftp)[;.,]?//+([^/].*)$`).FindStringSubmatch(path)
	quote := func(q string) bool { return len(path) > 1 && strings.HasPrefix(path, q) && strings.HasSuffix(path, q) }
	switch hint := cmp.Or(programs.OtherDash(path), Unexpanded(path)); {
	case hint != "":
		return hint
	case quote(`"`), quote(`'`):
		return "the quotes are part of the name: leave them out where the name is set (Docker's --env-file keeps them)"
	case colonless != nil:
		url := strings.ToLower(colonless[1]) + "://" + colonless[2]
		return "the colon of the URL is missing: did you mean " + text.Word(cmp.Or(session.Redact(url), "SCHEME://…")) + "?"
	case strings.TrimSpace(path) != path:
		return "the name begins or ends with a space or a carriage return: leave it out where the name is set"
	case strings.HasPrefix(path, "="):
		return "the = is part of the name: write -r NAME, or --repo=NAME"
	case runtime.GOOS != "windows" && strings.HasPrefix(path, `\`):
		return `the name has \ in place of /: it is a path of Windows, or a shell has kept the \`
	case lazyregexp.New(`^[\w.-]+@[\w.-]+:`).MatchString(path):
		return "a directory on a server is written sftp://USER@HOST/PATH, with a path relative to the home directory, or sftp://USER@HOST//PATH"
	default:
		return ""
	}
}

// namesRepository reports whether a word is a URL or an existing directory.
func namesRepository(word string) bool {
	if strings.Contains(word, "://") {
		return true
	}
	info, err := os.Stat(word)
	return err == nil && info.IsDir()
}

// byFlag returns a hint on how to name a repository.
func byFlag(word string) string {
	return "write a repository after its flag: -r " + text.Word(harmless(word))
}

// harmless returns a word of the command line without possible secrets: the credentials of a URL and the value
// of a variable.
func harmless(word string) string {
	switch {
	case setting(word):
		name, _, _ := strings.Cut(word, "=")
		return name + "=…"
	case strings.Contains(word, "://"):
		return cmp.Or(session.Redact(word), "URL")
	default:
		return word
	}
}

// setting reports whether a word sets a variable, as a shell does.
func setting(word string) bool { return lazyregexp.New(`^[A-Za-z_]\w*=`).MatchString(word) }

// Unrunnable adds a hint to the error of a command that could not be run. repo is the repository of the line.
func Unrunnable(args []string, repo string, err error) error {
	class := procgroup.ErrNotFound
	if !errors.Is(err, class) {
		class = procgroup.ErrNotExecutable
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || !errors.Is(err, class) {
		return err
	}
	word := args[0]
	if safe := harmless(word); safe != word {
		err = fmt.Errorf("%s: %w", safe, class)
	}
	dashes := slices.Contains(args, "--")
	if dashes && repo != "" {
		if hint, sure := rejoined("-r ", repo, args); sure {
			return fault.Advise(err, hint)
		}
	}
	switch hint := Unexpanded(word); {
	case dashes && namesRepository(word):
		return fault.Advise(err, byFlag(word))
	case programs.Misplaced(word) != "":
		return fault.Advise(err, programs.Misplaced(word))
	case setting(word):
		return fault.Advise(err, "only a shell sets a variable like this: write env before it")
	case strings.Contains(word, " "):
		return fault.Advise(err, "the quotes make one word of the whole command: leave them out, or write sh -c before them")
	case slices.Contains(ofShell[:], word):
		return fault.Advise(err, "it is a builtin of the shell: write sh -c '"+word+" ...'")
	case hint != "":
		return fault.Advise(err, hint)
	case errors.Is(err, syscall.E2BIG):
		return fault.Advise(err, "with the variables that repolock adds, its words are a little too many for the kernel: split them, as xargs -n does, or have the command read them from a file")
	case errors.Is(err, procgroup.ErrNotExecutable) && errors.Is(err, syscall.ENOENT):
		return fault.Advise(err, noInterpreter(word))
	case errors.Is(err, syscall.ENOEXEC):
		return fault.Advise(err, "it isn't a program for this machine, and a script must begin with a line such as #!/bin/sh: add the line, or write sh before the script")
	case !strings.Contains(word, "/") && errors.Is(err, procgroup.ErrNotFound):
		return fault.Advise(err, "not found in PATH (cron, systemd and sudo have a shorter one): give the full path")
	case filepath.IsAbs(word) && errors.Is(err, procgroup.ErrNotFound):
		return fault.Advise(err, "check the path: there is no such file")
	default:
		return err
	}
}

// noInterpreter explains why an existing program isn't found.
func noInterpreter(program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		path = program
	}
	file, err := regular.Open(path)
	if err != nil {
		return "its interpreter or dynamic loader doesn't exist"
	}
	defer file.Close()
	begin := make([]byte, 128)
	n, _ := file.Read(begin)
	line, _, _ := strings.Cut(string(begin[:n]), "\n")
	by, script := strings.CutPrefix(line, "#!")
	if !script {
		return "its dynamic loader doesn't exist: it was built for another system"
	}
	why := ""
	if strings.HasSuffix(by, "\r") {
		why = ", because the lines end with a carriage return, as on Windows"
	}
	return fmt.Sprintf("its first line names a program that doesn't exist: %.80q%s", strings.Trim(by, " \t"), why)
}

// ofShell are builtin commands of a shell.
var ofShell = [...]string{"cd", "export", "source", ".", "ulimit", "umask", "set", "exec", "eval", "if", "for", "while"}

var shellVariable = lazyregexp.New(`\$(\w|\{\w|\()`)

// Unexpanded returns the hint for a path with a ~ or a $ that a shell would have replaced, or "". The ~ is at its
// beginning or, after repolock has made the path absolute, further on.
func Unexpanded(path string) string {
	switch {
	case strings.HasPrefix(path, "~"), strings.Contains(path, string(filepath.Separator)+"~"):
		return "no shell has replaced the ~: write the path in full, or outside of quotes"
	case shellVariable.MatchString(path):
		return "no shell has replaced the $ (cron and systemd don't do that in settings): write the path in full, or outside of single quotes"
	default:
		return ""
	}
}
