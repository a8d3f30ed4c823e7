package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/repolock/repolock/internal/config"
)

type reposCmd struct{}

func (reposCmd) Help() string {
	return `They are in a configuration file, the first of which is read that is there: the one that --config or REPOLOCK_CONFIG
names, repolock/config.toml among the user's settings, /etc/repolock/config.toml. docs/configuration.md has the whole of it.`
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
		out.File, out.Default = g.file.Path, redact(g.file.Repo)
		for _, name := range slices.Sorted(maps.Keys(g.file.Repositories)) {
			listed := g.file.Repositories[name]
			out.Repositories = append(out.Repositories, jsonRepo{name, redact(listed.URL), lockName(listed.Name)})
		}
	}
	if r.JSON {
		return 0, r.result(out)
	}
	return 0, out.print(r)
}

func (o jsonRepos) print(r *reporter) error {
	if o.File == "" {
		_, err := fmt.Fprintf(r.stdout, "no configuration file; it would be %s\n", strings.Join(o.LookedFor, ", or "))
		return err
	}
	t := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tREPOSITORY\tLOCK")
	for _, repo := range o.Repositories {
		fmt.Fprintf(t, "%s\t%s\t%s\n", repo.Name, escape(repo.URL), repo.LockName)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.stdout, "default: %s\nread from %s\n", escape(dash(o.Default)), escape(o.File))
	return err
}
