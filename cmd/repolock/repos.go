package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/text"
)

type reposCmd struct{}

func (reposCmd) Help() string {
	return `repolock reads the first configuration file that exists: that of --config or REPOLOCK_CONFIG,
repolock/config.toml in the user's settings, /etc/repolock/config.toml. docs/configuration.md describes it in full.`
}

// jsonRepos is what the configuration file lists, in JSON. Fields are only ever added.
type jsonRepos struct {
	File         string     `json:"file,omitempty"`
	LookedFor    []string   `json:"looked_for,omitempty"` // if there is none
	Default      string     `json:"default,omitempty"`
	Repositories []jsonRepo `json:"repositories"`
}

type jsonRepo struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	LockName string `json:"lock_name"`
}

func (reposCmd) run(r *reporter, g global) (int, error) {
	out := jsonRepos{Repositories: []jsonRepo{}}
	if g.file == nil {
		out.LookedFor = config.Places()
	} else {
		out.File, out.Default = g.file.Path, session.Redact(g.file.Repo)
		for _, name := range slices.Sorted(maps.Keys(g.file.Repositories)) {
			listed := g.file.Repositories[name]
			out.Repositories = append(out.Repositories, jsonRepo{name, session.Redact(listed.URL), events.LockName(listed.Name)})
		}
	}
	return 0, r.result(out, out.words())
}

func (o jsonRepos) words() string {
	if o.File == "" {
		return fmt.Sprintf("no configuration file; it would be %s\n", strings.Join(o.LookedFor, ", or "))
	}
	rows := []string{"NAME\tREPOSITORY\tLOCK"}
	for _, repo := range o.Repositories {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", repo.Name, text.Escape(repo.URL), repo.LockName))
	}
	return aligned(rows...) + fmt.Sprintf("default: %s\nread from %s\n", text.Escape(text.Or(o.Default, "-")), text.Escape(o.File))
}
