package cli

import (
	"io"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/config"
)

// Globals are the flags of all commands.
type Globals struct {
	Repo   string `once:"" predictor:"repository" short:"r" placeholder:"REPOSITORY" env:"REPOLOCK_REPO" help:"Repository: a directory, an ${schemes} URL, or a name from the configuration file."`
	Name   string `once:"" config:"" placeholder:"NAME" help:"Use the lock of this name, for a repository that has several."`
	Config string `emptiable:"" predictor:"file" placeholder:"FILE" env:"REPOLOCK_CONFIG" help:"Configuration file, in place of the user's or the system's; an empty name means no file."`
	JSON   bool   `name:"json" help:"Print JSON: results on stdout, an error on stderr."`
	Quiet  bool   `short:"q" help:"Print only errors."`
	Verb   bool   `short:"v" name:"verbose" help:"Print every event of the lock."`

	PrintVersion versionFlag `name:"version" help:"Show the version, and exit."`

	File    *config.File `kong:"-"` // nil: no file was read
	Unknown error        `kong:"-"` // the reason why no repository has the name in Repo
	Listed  string       `kong:"-"` // the lock's name in the configuration file

	Sources map[string]source `kong:"-"` // of the flags that the command line doesn't have
	Typed   map[string]string `kong:"-"` // values of the global flags that the command line has
}

// IsDefault reports whether a flag has its default because no source sets it.
func (g Globals) IsDefault(flag string) bool {
	from, ok := g.Sources[flag]
	return ok && from == source{}
}

// OnLine reports whether the command line itself sets a flag.
func (g Globals) OnLine(flag string) bool {
	_, resolved := g.Sources[flag]
	return g.Sources != nil && !resolved
}

// versionFlag is --version.
type versionFlag bool

// versionText is Reader.Version, which kong passes to BeforeReset.
type versionText func() string

// BeforeReset prints the version and ends repolock. Kong calls it when it has parsed the flag.
func (versionFlag) BeforeReset(app *kong.Kong, version versionText) error {
	_, err := io.WriteString(app.Stdout, version())
	app.Exit(0)
	return err
}
