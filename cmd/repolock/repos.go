package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/text"
)

type reposCmd struct{}

// jsonRepos is the result of repos in JSON. Fields are only ever added.
type jsonRepos struct {
	File         string     `json:"file,omitempty"`
	LookedFor    []string   `json:"looked_for,omitempty"` // if there is no file
	Default      string     `json:"default,omitempty"`
	Repositories []jsonRepo `json:"repositories"`
}

type jsonRepo struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	LockName string `json:"lock_name"`
}

func (reposCmd) run(r *show.Reporter, g global) (int, error) {
	out := jsonRepos{Repositories: []jsonRepo{}}
	if g.File == nil {
		out.LookedFor = config.Places()
	} else {
		out.File, out.Default = g.File.Path, session.Redact(g.File.Repo)
		for _, name := range slices.Sorted(maps.Keys(g.File.Repositories)) {
			listed := g.File.Repositories[name]
			out.Repositories = append(out.Repositories, jsonRepo{name, session.Redact(listed.URL), events.LockName(listed.Name)})
		}
	}
	return 0, r.Result(out, out.words(show.ColumnsOf(os.Stdout)))
}

func (o jsonRepos) words(width int) string {
	if o.File == "" {
		return show.Folded(fmt.Sprintf("no configuration file; it would be %s\n", strings.Join(o.LookedFor, ", or ")), width)
	}
	rows := []string{"NAME\tREPOSITORY\tLOCK"}
	for _, repo := range o.Repositories {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", repo.Name, text.Escape(repo.URL), repo.LockName))
	}
	return show.Table(show.ColumnsOfRows(rows, map[string]show.Column{"NAME": {Least: 12}, "REPOSITORY": {Least: 20}}), width) +
		show.Folded(fmt.Sprintf("default: %s\nread from %s\n", text.Escape(text.Or(o.Default, "-")), text.Escape(o.File)), width)
}
