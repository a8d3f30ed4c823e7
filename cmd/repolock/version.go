package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/lazyregexp"
)

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
