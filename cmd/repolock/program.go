package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/programs"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// unnamed is the command of a line that has a program after --, and no command of repolock before.
const unnamed = "PROGRAM"

// programCmd runs a backup program's command under the lock that the command needs, in the program's repository.
type programCmd struct {
	NoUnlock bool `config:"" name:"no-unlock" help:"Don't run restic unlock before an exclusive command of restic. It removes restic's own stale locks."`
	wrapCmd
}

func (c programCmd) run(r *show.Reporter, g global) (int, error) {
	args, err := c.args(unnamed)
	if err != nil {
		return 0, err
	}
	line, err := programs.Read(args, os.Environ())
	if err != nil {
		return 0, err
	}
	line.Look(thisMachine())
	if g.Repo != "" {
		line.In(g.Repo)
	}
	c.mode, c.operation = line.Mode, line.Operation
	if c.mode == programs.None {
		if len(c.Also) > 0 {
			return 0, fault.New(fault.Usage, "--also: %s %s needs no lock: leave it out, or write repolock run --shared", line.Program.Name, line.Operation)
		}
		return c.wrapCmd.run(r, g)
	}
	if c.mode == replock.Exclusive && g.Sources["if-unreachable"].File != "" {
		c.IfUnreachable = "" // it is for backups
	}
	if g, err = c.locate(r, g, line); err != nil {
		return 0, err
	}
	if !c.NoUnlock {
		c.unlock = line.Unlock()
	}
	return c.wrapCmd.run(r, g)
}

// locate completes g by the program's own place, if no other repository is given.
func (c *programCmd) locate(r *show.Reporter, g global, line *programs.Line) (global, error) {
	given := g.given()
	place, err := line.Place(thisMachine())
	switch {
	case err == nil:
		g = g.in(line.Program, place, given)
	case given: // the lock has this name wherever it is
		g = g.in(line.Program, programs.Place{Name: line.Program.Lock}, given)
	case len(c.Also) > 0: // the locks of --also alone
		return g, nil
	default:
		return g, err
	}
	r.Options = g.shown()
	if r.Verbose && g.Repo != "" && g.Unknown == nil {
		r.Say("%s %s: the %s lock in %s", line.Program.Name, line.Operation, line.Mode, text.Escape(g.place().Title()))
	}
	return g, nil
}

// given reports whether a person has named a repository. That one wins over a program's own place.
func (g global) given() bool {
	return g.Repo != "" || g.Unknown != nil || g.Sources["repo"].Variable != ""
}

// in returns g with the place and the name of a program's lock. It keeps the repository and the name that a person has
// given.
func (g global) in(p *programs.Program, place programs.Place, given bool) global {
	g.Typed = maps.Clone(g.Typed)
	if !given {
		g.Repo, g.Typed["repo"] = place.URL, place.URL
		g.by, g.onlyLocks = place.By, place.Alone
		for _, v := range place.Environ { // the store's credentials
			name, value, _ := strings.Cut(v, "=")
			_ = os.Setenv(name, value)
		}
		if place.Beside {
			g.beside = p.Name
		}
	}
	if g.Name == "" && place.Name != "" {
		g.Name, g.Typed["name"] = place.Name, place.Name
	}
	return g
}

// instead returns the hint for a command that lacks a repository, if a program has one, or "".
func instead(name string, command any) string {
	var words []string
	if c, ok := command.(interface {
		args(of string) ([]string, error)
	}); ok {
		words, _ = c.args(name)
	}
	return programs.Instead(name, words, os.Environ(), thisMachine())
}

// thisMachine has the facts about this machine that package programs may read.
func thisMachine() programs.System {
	settings, _ := os.UserConfigDir()
	return programs.System{
		Settings: settings,
		ReadFile: func(path string) ([]byte, error) {
			f, err := regular.Open(path)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return io.ReadAll(io.LimitReader(f, 1<<20))
		},
		IsDir: func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.IsDir()
		},
		Run: func(args, environ []string) ([]byte, error) {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = environ
			return cmd.Output()
		},
	}
}

// checkLine refuses a lock that is too weak for the command, and warns if the program's repository is elsewhere.
func (c wrapCmd) checkLine(r *show.Reporter, g global, args []string) error {
	if c.word != "" {
		if err := programs.Weak(args, os.Environ(), c.mode, c.word); err != nil {
			return err
		}
	}
	line, err := programs.Read(args, os.Environ())
	if err != nil || c.mode == programs.None || g.Repo == "" || g.Unknown != nil || line.Program.Name == "rclone" {
		return nil
	}
	if place, err := line.Place(thisMachine()); err == nil && !place.Beside && !programs.Contains(g.Repo, place.URL) {
		r.Say("warning: the lock is in %s, but the repository of %s in %s: another machine that locks there doesn't see this lock",
			text.Escape(g.place().Where()), line.Program.Name, text.Escape(session.Redact(place.URL)))
	}
	return nil
}

// afterUnlock returns the command line that runs unlock first, and then the command in the same process.
func afterUnlock(unlock, args []string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, err := procgroup.LookPath(args); err != nil {
		return nil, err
	}
	return slices.Concat([]string{self, "unlocked", "--", strconv.Itoa(len(unlock))}, unlock, args), nil
}

// unlockedCmd runs a command after another one, which may fail. It runs under the lock.
type unlockedCmd struct {
	Words []string `arg:"" passthrough:"" help:"The number of words of the first command, and both commands."`
}

func (c unlockedCmd) run(r *show.Reporter, _ global) (int, error) {
	words := slices.Clone(c.Words)
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	n := 0
	if len(words) > 0 {
		n, _ = strconv.Atoi(words[0])
		words = words[1:]
	}
	if n < 1 || n >= len(words) {
		return 0, cli.ErrNoCommand
	}
	first := exec.Command(words[0], words[1:n]...)
	first.Stdout, first.Stderr = os.Stderr, os.Stderr
	if err := first.Run(); err != nil {
		r.Say("warning: %s unlock failed (%v): if a killed %[1]s has left its own lock, that lock can block the command", text.Escape(words[0]), err)
	}
	return session.Become(words[n:], os.Environ())
}

// programsHelp is the table of the programs.
func programsHelp(*kong.Application) string {
	var b strings.Builder
	b.WriteString(text.Wrap("repolock [flags] -- PROGRAM … runs a command of a backup program under the lock that the command needs, in the program's own repository. It takes the flags of repolock backup.", cli.HelpWidth, "") + "\n")
	for _, p := range programs.All {
		exclusive, shared, none := p.Modes()
		fmt.Fprintf(&b, "\n%s (docs/%s)\n", strings.Join(append([]string{p.Name}, p.Others...), ", "), p.Page)
		for _, row := range []struct {
			mode  string
			words []string
		}{{"exclusive", exclusive}, {"shared", shared}, {"no lock", none}} {
			line := text.Wrap(strings.Join(row.words, ", "), cli.HelpWidth, strings.Repeat(" ", 13))
			fmt.Fprintf(&b, "  %-11s%s\n", row.mode, line[13:])
		}
		for _, c := range p.Commands {
			if c.Refused != "" {
				line := text.Wrap(c.Words+": "+c.Refused, cli.HelpWidth, strings.Repeat(" ", 13))
				fmt.Fprintf(&b, "  %-11s%s\n", "not run", line[13:])
			}
		}
	}
	b.WriteString("\n" + text.Wrap("A command's own dry run needs no lock, except for a restore's. A copy or a copyto of rclone is shared with --ignore-existing, with --immutable if it copies a directory, and from a remote into a directory. A command of Kopia that writes is shared with --no-auto-maintenance. rclone's mount and serve are shared with --read-only. repolock looks through env, nice, ionice, timeout, nohup, time, chrt, taskset, caffeinate, sudo, doas and systemd-run --scope. It refuses everything else: write repolock run --shared or run --exclusive. Before an exclusive command of restic it runs restic unlock, unless --no-unlock is given.", cli.HelpWidth, "") + "\n")
	return b.String()
}

// after is the program that follows status, break-lock or doctor and --.
type after struct {
	Program []string `hidden:"" sep:"none" help:"The program after --."`
}

// ofProgram makes the program that follows status, break-lock or doctor and -- a flag of the command. A directory of that
// name is written ./NAME. It returns any other line unchanged.
func ofProgram(args []string) []string {
	before := cli.BeforeDashes(args)
	c, ok := reader.Called(args)
	if !ok || !slices.Contains([]string{"status", "break-lock", "doctor"}, c.Name) || len(args) < len(before)+2 {
		return args
	}
	program := args[len(before)+1:]
	if program[0] == "" || programs.Find(program[0]) == nil && c.Name == "doctor" && canBeRepository(program[0], args) {
		return args
	}
	words := slices.Clone(before)
	for _, word := range program {
		words = append(words, "--program="+word)
	}
	return words
}

// canBeRepository reports whether a word can be the argument of doctor: a URL, a path, or a name of the configuration
// file.
func canBeRepository(word string, args []string) bool {
	if strings.ContainsAny(word, `:/\`) {
		return true
	}
	if file := reader.ConfigFile(args); file != nil {
		if _, listed := file.Repositories[word]; listed {
			return true
		}
	}
	info, err := os.Stat(word)
	return err == nil && info.IsDir()
}

// known returns the program. It can have a path and wrappers, as in a line of repolock -- PROGRAM.
func (a after) known(r *show.Reporter) (*programs.Program, error) {
	if line, _ := programs.Read(a.Program, os.Environ()); line.Program != nil {
		return line.Program, nil
	}
	return nil, programs.UnknownAlone(r.Command, a.Program)
}

// locate completes g by the place in which repolock -- PROGRAM locks.
func (a after) locate(r *show.Reporter, g global) (global, error) {
	if len(a.Program) == 0 {
		return g, nil
	}
	p, err := a.known(r)
	if err != nil {
		return g, err
	}
	given, place := g.given(), programs.Place{Name: p.Lock}
	if !given {
		if _, place, err = placeOf(a.Program); err != nil {
			return g, err
		}
	}
	g = g.in(p, place, given)
	r.Options = g.shown()
	return g, nil
}

// placeOf returns the place of the lock of a program, whose line can lack a command.
func placeOf(words []string) (*programs.Line, programs.Place, error) {
	line, err := programs.Read(words, os.Environ())
	if err != nil && line.Program != nil && line.Command == nil {
		line, err = programs.Read(slices.Concat(words, strings.Fields(line.Program.Commands[0].Words)), os.Environ())
	}
	if err != nil {
		return nil, programs.Place{}, err
	}
	place, err := line.Place(thisMachine())
	return line, place, err
}

// jsonProgram is the result of doctor for a program. Fields are only ever added.
type jsonProgram struct {
	Program  string        `json:"program"`
	Place    string        `json:"place,omitempty"`
	LockName string        `json:"lock_name,omitempty"`
	Unknown  string        `json:"unknown,omitempty"` // why the place isn't known
	Commands []jsonCommand `json:"commands"`
}

type jsonCommand struct {
	Command string `json:"command"`
	Mode    string `json:"mode,omitempty"` // empty: none
	Refused string `json:"refused,omitempty"`
}

// program reports which lock repolock takes for each command of a program, and where.
func (c doctorCmd) program(r *show.Reporter, g global) (int, error) {
	p, err := c.known(r)
	if err != nil {
		return 0, err
	}
	out := jsonProgram{Program: p.Name}
	rows := []string{"COMMAND\tLOCK"}
	for _, command := range p.Commands {
		one := jsonCommand{Command: command.Words, Refused: command.Refused}
		mode := "none"
		switch {
		case command.Refused != "":
			mode = "isn't run: " + command.Refused
		case command.Mode != programs.None:
			one.Mode = command.Mode.String()
			mode = one.Mode
		}
		out.Commands = append(out.Commands, one)
		rows = append(rows, command.Words+"\t"+mode)
	}
	where := ""
	_, place, err := placeOf(c.Program)
	switch {
	case g.Repo != "":
		at := g.place()
		at.Name = cmp.Or(at.Name, p.Lock)
		out.Place, out.LockName = at.Where(), at.Name
		where = "the lock is in " + text.Escape(at.Title()) + ", which repolock's settings name"
	case err != nil:
		out.Unknown = err.Error()
	default:
		at := session.Place{Repo: place.URL, Name: place.Name}
		out.Place, out.LockName = at.Where(), at.Name
		where = "the lock is in " + text.Escape(at.Title())
	}
	where = cmp.Or(where, "the place of the lock isn't known: "+text.Escape(out.Unknown))
	return 0, r.Result(out, show.Hanging(where, show.TerminalWidth(os.Stdout))+"\n\n"+show.Aligned(rows...))
}
