// Repolock runs a backup, restore or prune under a lock that it keeps in the backup repository itself.
package main

import (
	"cmp"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
)

func main() {
	log.SetOutput(io.Discard) // net/http logs answers without a request
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// patience is reporter.patience. Tests replace it: they print in pipes, and their machine can be slow.
var patience = 5 * time.Second

// run runs a command line, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	r := &show.Reporter{Stdout: stdout, Stderr: stderr, Terminal: show.StderrTerminal, Patience: patience}
	in, err := reader.Parse(args, stdout, stderr)
	if in.Helped {
		return 0
	}
	if c, _ := reader.Called(args); c.Tag != cli.Hidden {
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
	explain(r, in, args)
	code, err := in.Selected.Target.Interface().(command).run(r, g)
	if err != nil {
		code = r.Fail(err)
		if sig, ok := session.SignalOf(err); ok {
			session.Interrupt(sig, false)
		}
	}
	return code
}

// explain warns about a repository's name that is also a directory's, and about variables that have no effect.
func explain(r *show.Reporter, in *cli.Parsed, args []string) {
	if c, _ := reader.Called(args); c.Tag != "" { // it reads no settings
		return
	}
	if in.Notice != "" {
		r.Say("%s", in.Notice)
	}
	for _, said := range reader.Unheeded(os.Environ(), r.AcquiresLock()) {
		r.Say("warning: %s", said)
	}
}

type versionCmd struct{}

// build is the result of version in JSON. Fields are only ever added.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	System   string `json:"system"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
}

func (versionCmd) run(r *show.Reporter, _ global) (int, error) {
	b := newBuild()
	return 0, r.Result(b, b.String())
}

// String returns the version for people. The first line has all that a bug report needs.
func (b build) String() string {
	text := "repolock " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(len(b.Commit), 8)] + " of " + b.Time[:min(len(b.Time), len(time.DateOnly))]
	}
	if b.Modified {
		text += " (modified)"
	}
	return text + "\n" + b.Go + ", " + b.System + "\n"
}

// pseudo returns the commit and its time from a pseudo-version. After go install MODULE@main the version is all
// that Go knows of the commit.
func pseudo(version string) (commit, at string) {
	parts := lazyregexp.New(`[-.](\d{14})-([0-9a-f]{12})(\+|$)`).FindStringSubmatch(version)
	if parts == nil {
		return "", ""
	}
	t, err := time.Parse("20060102150405", parts[1])
	if err != nil {
		return "", ""
	}
	return parts[2], t.Format(time.RFC3339)
}

func newBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	b.Commit, b.Time = pseudo(b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
