package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

type versionCmd struct{}

// build is the build information in JSON. Fields are only ever added.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	System   string `json:"system"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
}

func (versionCmd) run(r *reporter, _ global) (int, error) {
	b := newBuild()
	return 0, r.result(b, b.String())
}

// versionFlag is --version.
type versionFlag bool

// BeforeReset is called by kong when it has parsed the flag.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := io.WriteString(app.Stdout, newBuild().String())
	app.Exit(0)
	return err
}

// String returns the line that people read.
func (b build) String() string {
	text := fmt.Sprintf("repolock %s (%s, %s", b.Version, b.Go, b.System)
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(len(b.Commit), 12)] + " of " + b.Time
	}
	if b.Modified {
		text += ", modified"
	}
	return text + ")\n"
}

func newBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
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
