// Repolock runs a backup, restore or prune under a lock that it keeps in the backup repository itself.
package main

import (
	"errors"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
)

func main() {
	log.SetOutput(io.Discard) // net/http logs responses that answer no request
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// patience is how long a wait in a pipe or a file lasts until repolock prints a line about it. A test sets a longer one,
// because a slow machine would print that line at another time.
var patience = 5 * time.Second

// run runs a command line, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	r := &show.Reporter{Stdout: stdout, Stderr: stderr, Terminal: show.StderrTerminal, Patience: patience}
	args = ofProgram(reader.Named(args))
	in, err := reader.Parse(args, stdout, stderr)
	if in.Helped {
		return 0
	}
	if c, _ := reader.Called(args); c.Tag == cli.Unnamed {
		r.Command = "programs" // the topic of help
	} else if !c.IsHidden() {
		r.Command = c.Name
	}
	g := global{Globals: in.Globals}
	r.Options = g.shown()
	if len(args) == 0 {
		_, _ = io.WriteString(stderr, briefly)
		return fault.ExitUsage
	}
	if err != nil {
		r.JSON = slices.Contains(cli.BeforeDashes(args), "--json") // parsing ended before the flag was set
		return r.Fail(reader.Mistaken(err, args))
	}
	if in.Selected == nil { // the words name a hidden command only as the value of a flag
		return r.Fail(fault.New(fault.Usage, "no command is given"))
	}
	explain(r, in, args)
	code, err := in.Selected.Target.Interface().(command).run(r, g)
	if err != nil {
		if errors.Is(err, errNoRepository) && fault.Advice(err) == fault.SeeHelp {
			err = fault.Advise(err, instead(r.Command, in.Selected.Target.Interface()))
		}
		code = r.Fail(err)
		if sig, ok := session.SignalOf(err); ok {
			session.Interrupt(sig, false)
		}
	}
	return code
}

// explain warns if a repository's name is also a directory's, and if a variable has no effect.
func explain(r *show.Reporter, in *cli.Parsed, args []string) {
	if c, _ := reader.Called(args); c.Tag != "" && c.Tag != cli.Unnamed { // it reads no settings
		return
	}
	if in.Notice != "" {
		r.Say("%s", in.Notice)
	}
	for _, said := range reader.Unheeded(os.Environ(), r.AcquiresLock()) {
		r.Say("warning: %s", said)
	}
}
