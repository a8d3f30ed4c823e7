package main

import (
	"embed"
	"maps"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/complete"
)

// completionCmd prints a script for a shell. The script runs completeCmd at each TAB.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

//go:embed completion
var scripts embed.FS

func (c completionCmd) run(r *show.Reporter, _ global) (int, error) {
	script, err := scripts.ReadFile("completion/repolock." + c.Shell)
	if err != nil {
		panic(err) // can't happen: the script is embedded
	}
	return r.Print(string(script))
}

// completeCmd prints the completions of the last word, one a line. A flag or a command is followed by a tab and its
// description. For :file and :directory the shell completes paths.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c completeCmd) run(r *show.Reporter, _ global) (int, error) {
	if len(c.Words) < 2 {
		return 0, nil
	}
	lines := ""
	for _, word := range completions(joined(c.Words[1:])) { // after --
		lines += word + "\n"
	}
	return r.Print(lines)
}

// joined puts --flag=value together again, which bash splits into three words.
func joined(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		if words[i] == "=" && len(out) > 0 && strings.HasPrefix(out[len(out)-1], "--") {
			out[len(out)-1] += "="
			if i++; i < len(words) {
				out[len(out)-1] += words[i]
			}
			continue
		}
		out = append(out, words[i])
	}
	return out
}

// completions returns the completions of the last word, or of the value in --flag=value.
func completions(words []string) []string {
	return complete.Words(reader.NewParser(&cli.Globals{}, reader.Names()), words, func(kind string) []string {
		switch kind {
		case "file":
			return []string{":file"}
		case "repository":
			return append(knownNames(words), ":directory")
		case "topic":
			return helpTopics()
		case "lock":
			return also.Prefixes()
		case "repository or lock":
			return slices.Concat(also.Prefixes(), knownNames(words), []string{":directory"})
		default:
			panic("no predictor " + kind) // the tags are wrong
		}
	})
}

// helpTopics returns the arguments of help, each with a tab and its description.
func helpTopics() (all []string) {
	for _, c := range reader.Commands() {
		if !c.IsHidden() {
			all = append(all, c.Name+"\t"+strings.TrimSuffix(c.Help, "."))
		}
	}
	for _, t := range topics {
		all = append(all, t.Name+"\t"+t.Brief)
	}
	return all
}

// knownNames returns the names of the repositories in the configuration file.
func knownNames(words []string) []string {
	args := []string{"repos"}
	for i, word := range words {
		if path, ok := strings.CutPrefix(word, "--config="); ok {
			args = append(args, "--config="+path)
		} else if word == "--config" && i+1 < len(words) {
			args = append(args, "--config="+words[i+1])
		}
	}
	file := reader.ConfigFile(args)
	if file == nil {
		return nil
	}
	return slices.Collect(maps.Keys(file.Repositories))
}
