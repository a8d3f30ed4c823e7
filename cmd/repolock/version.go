package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
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
	text := fmt.Sprintf("repolock %s (%s, %s", b.Version, b.Go, b.System)
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(len(b.Commit), 12)] + " of " + b.Time
	}
	if b.Modified {
		text += ", modified"
	}
	return 0, r.result(b, text+")\n")
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
